"""Ops that passes make: issued by name, with example values, sizes as values, attention through the callback."""

from __future__ import annotations

import pytest
import torch

from attnc.compiler.frontends.torch import import_graph
from attnc.compiler.host.pipeline import finish, prepare
from attnc.compiler.host.sizes import materialize_all
from attnc.compiler.host.to_fx import Lowered, export_graph
from attnc.ir.types import DType, ScalarType, TensorType
from attnc.ir.values import Literal


def compiled_with(edit, function, *inputs, lower=None):
    """Compile ``function`` with an edit of its IR; returns its result, the IR and the exported module."""
    kept = []

    def backend(gm, args):
        captured = prepare(gm, args)
        graph = import_graph(captured.graph_module)
        edit(graph)
        module = export_graph(graph, lower)
        kept.extend((graph, module))
        call = finish(captured, module, args, "aten")
        assert captured.notes == []
        return call

    return torch.compile(function, backend=backend)(*inputs), *kept


def dynamic(*shape):
    x = torch.randn(*shape)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_dynamic(x, 1)
    return x


def test_new_ops_carry_example_values_and_origin():
    def edit(graph):
        sin = graph.ops[0]
        flat = sin.result.type.shape[0] * sin.result.type.shape[1]
        (rows,) = materialize_all(graph, [flat], sin)
        view = graph.create(
            "aten.view.default", [sin.args[0], (rows, 2, 2)], [TensorType(DType.F32, (flat, 2, 2))], before=sin
        )
        view.meta["origin"] = sin.meta["fx"]
        cast = graph.create(
            "aten._to_copy.default",
            [view.result],
            [TensorType(DType.F64, (flat, 2, 2))],
            kwargs={"dtype": Literal("dtype", "f64")},
            after=view,
        )
        graph.outputs = (cast.result,)

    x = dynamic(3, 5, 4)
    out, _, module = compiled_with(edit, lambda x: x.sin(), x)
    torch.testing.assert_close(out, x.view(15, 2, 2).double(), rtol=0, atol=0)
    view, cast = (
        module.graph.find_nodes(op="call_function", target=t)[0] for t in (VIEW, torch.ops.aten._to_copy.default)
    )
    assert not isinstance(view.meta["val"].shape[0], int) and view.meta["val"].shape[1:] == (2, 2)
    assert "x.sin()" in view.meta["stack_trace"] and "stack_trace" not in cast.meta
    assert cast.meta["val"].dtype == torch.float64


VIEW, TO_COPY = torch.ops.aten.view.default, torch.ops.aten._to_copy.default


def test_an_op_renamed_in_place_is_issued_under_its_new_name():
    def edit(graph):
        graph.ops[0].name = "aten.cos.default"

    x = torch.randn(3)
    out, _, module = compiled_with(edit, lambda x: x.sin(), x)
    torch.testing.assert_close(out, x.cos(), rtol=0, atol=0)
    (node,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.cos.default)
    assert node.meta["val"].shape == (3,) and "x.sin()" in node.meta["stack_trace"]


def attention(graph):
    sdpa = next(op for op in graph.ops if op.name.startswith("aten.scaled_dot"))
    made = graph.create(
        "attn.attention",
        sdpa.args[:3],
        [sdpa.result.type, TensorType(DType.F32, (0,))],
        before=sdpa,
        names=["out", "lse"],
    )
    made.meta["origin"] = sdpa.meta["fx"]
    graph.replace_uses(sdpa.result, made.results[0])
    graph.erase(sdpa)


def with_lse(q, k, v, scale):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scale), q.new_empty(0)


def test_attention_goes_through_the_callback():
    q = torch.randn(1, 2, 5, 4)
    out, _, module = compiled_with(
        attention,
        lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q) * 2,
        q,
        lower=lambda op: Lowered(with_lse, (*op.args, 0.5)),
    )
    torch.testing.assert_close(out, torch.nn.functional.scaled_dot_product_attention(q, q, q) * 2)
    names = [node.name for node in module.graph.nodes]
    assert names[1:] == ["out_call", "out", "lse", "mul", "output"]


def test_attention_without_a_callback_is_an_error():
    gm = torch.fx.symbolic_trace(lambda q: torch.ops.aten.scaled_dot_product_attention.default(q, q, q))
    for node in gm.graph.nodes:
        node.meta["val"] = torch.randn(1, 2, 5, 4)
    graph = import_graph(gm)
    attention(graph)
    with pytest.raises(LookupError, match=r"attn\.attention.*no lowering"):
        export_graph(graph)


def test_a_graph_from_text_has_no_metadata_but_runs():
    from attnc.ir.parser import parse_graph
    from attnc.ir.printer import print_graph

    gm = torch.fx.symbolic_trace(lambda x, n: torch.ops.aten.view.default(x, [n * 2, -1]))
    values = {"x": torch.randn(4, 6), "n": 2, "mul": 4, "view_default": torch.randn(4, 6)}
    for node in gm.graph.nodes:
        if node.name in values:
            node.meta["val"] = values[node.name]
    graph = parse_graph(print_graph(import_graph(gm)))
    assert isinstance(graph.inputs[1].type, ScalarType)
    module = export_graph(graph)
    assert module(torch.ones(4, 6), 3)[0].shape == (6, 4)
