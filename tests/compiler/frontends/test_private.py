"""Each private torch API is there and does what it is used for."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from attnc.compiler.frontends.torch import private


def test_aot_export_is_functional_and_before_dispatch():
    gm = torch.fx.symbolic_trace(lambda x: (torch.softmax(x, -1).add_(1),))
    exported, signature = private.aot_export(gm, [torch.randn(3)])
    assert len(exported.graph.find_nodes(op="call_function", target=torch.ops.aten.softmax.int)) == 1
    assert signature.user_inputs_to_mutate == {}
    assert not exported.graph.find_nodes(op="call_function", target=torch.ops.aten.add_.Scalar)


def test_fake_mode_and_quiet_guards():
    mode = FakeTensorMode(shape_env=private.ShapeEnv())
    x = mode.from_tensor(torch.randn(3, 4))
    assert private.fake_mode_of([None, {"a": (x,)}]) is mode and private.fake_mode_of([1]) is None
    extent = x.shape[0]
    before = len(mode.shape_env.guards)
    if not isinstance(extent, int):
        with private.quiet_guards(mode):
            assert bool(extent > 1)
    assert len(mode.shape_env.guards) == before


def test_version_is_preserved():
    x = torch.zeros(2)
    with private.preserve_version(x):
        x.add_(1)
    assert x._version == 0 and x.tolist() == [1, 1]


def test_autocast_pair_acts():
    mode = private.enter_autocast("cpu", torch.bfloat16, True, True)
    assert torch.is_autocast_enabled("cpu")
    private.exit_autocast(mode)
    assert not torch.is_autocast_enabled("cpu")


def test_functorch_calls_are_known():
    from torch._functorch import predispatch

    assert private.is_functorch_call(predispatch._vmap_increment_nesting)
    assert private.is_functorch_call(torch._C._functorch._grad_increment_nesting)
    assert not private.is_functorch_call(torch.sin)
    assert not private.is_vmap_call(torch._C._functorch._grad_increment_nesting)
    steps = (predispatch._vmap_increment_nesting, predispatch._add_batch_dim, predispatch._vmap_decrement_nesting)
    assert list(map(private.vmap_step, steps)) == [1, 0, -1]


def test_outside_a_compile_there_is_nothing_to_guard():
    node = torch.fx.Graph().placeholder("x")
    assert private.compile_place() is None and not private.guard_content(node)


def test_levels_left_open_are_closed():
    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    with private.levels_closed():
        torch._C._functorch._vmap_increment_nesting(2, "error")
        assert torch._C._functorch.get_dynamic_layer_stack_depth() == depth + 1
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == depth


def test_hop_names():
    assert private.hop_name(private.tag_activation_checkpoint) == "tag_activation_checkpoint"
    assert private.hop_name(torch.ops.higher_order.cond) == "cond"


def test_dim_names():
    program = torch.export.export(
        torch.nn.Linear(4, 4), (torch.randn(3, 4),), dynamic_shapes=({0: torch.export.Dim("rows")},)
    )
    value = next(n.meta["val"] for n in program.graph.nodes if n.name == "input")
    (symbol,) = [str(private.symint_expr(value.shape[0]))]
    assert private.dim_names(value.fake_mode.shape_env) == {symbol: "rows"}
    lo, hi = private.int_bounds(value.fake_mode.shape_env, private.symint_expr(value.shape[0]))
    assert lo is not None and lo >= 0 and hi is None
