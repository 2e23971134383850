"""The pieces of the importer: names, sizes, types, arguments, locations."""

from __future__ import annotations

import operator

import pytest
import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy import functions as torch_sympy
from torch.utils._sympy.value_ranges import ValueRanges

from attnc.compiler.frontends.torch import ImportFailure, import_graph, private
from attnc.compiler.frontends.torch.arguments import template, to_fx, to_ir
from attnc.compiler.frontends.torch.dtypes import TO_IR, from_literal, literal
from attnc.compiler.frontends.torch.location import location
from attnc.compiler.frontends.torch.names import op_name, resolve
from attnc.compiler.frontends.torch.sizes import NoSize, SizeTable
from attnc.compiler.host.identity import identity_backend
from attnc.ir.graph import SizeInfo
from attnc.ir.types import NoneType, OpaqueType, ScalarType, size
from attnc.ir.values import Literal, Value

aten = torch.ops.aten
NAMES = [
    (aten.softmax.int, "aten.softmax.int"),
    (aten._to_copy.default, "aten._to_copy.default"),
    (torch.ops.prims.convert_element_type.default, "prims.convert_element_type.default"),
    (operator.getitem, "py.getitem"),
    (operator.mul, "py.mul"),
    (torch.sym_max, "py.sym_max"),
    (torch._C._set_grad_enabled, "torch.set_grad_enabled"),
    (private.enter_autocast, "torch.enter_autocast"),
    (private.exit_autocast, "torch.exit_autocast"),
    (torch.ops.higher_order.cond, "hop.cond"),
    (torch.is_grad_enabled, "torch.is_grad_enabled"),
]


@pytest.mark.parametrize(("target", "name"), NAMES, ids=[name for _, name in NAMES])
def test_names_go_both_ways(target, name):
    assert op_name(target) == name
    assert resolve(name) is target


@pytest.mark.parametrize("name", ["aten.no_such_op.default", "hop.none", "torch.no.where", "py.none", "attn.attention"])
def test_unknown_names_are_errors(name):
    with pytest.raises(LookupError, match=name):
        resolve(name)


def env_with(lo, hi, name="s0"):
    env = ShapeEnv()
    symbol = sympy.Symbol(name, integer=True)
    env.var_to_range[symbol] = ValueRanges(lo, hi)
    return env, symbol


def test_torch_functions_become_plain_sympy():
    env, s = env_with(2, 64)
    n = size("s0")
    table = SizeTable()
    cases = {
        torch_sympy.FloorDiv(s, 4): sympy.floor(n / 4),
        torch_sympy.CleanDiv(4 * s, 2): 2 * n,
        torch_sympy.CeilDiv(s, 4): sympy.floor((n + 3) / 4),
        torch_sympy.PythonMod(s, 4): sympy.Mod(n, 4),
        torch_sympy.Mod(s, 4): sympy.Mod(n, 4),
        torch_sympy.Max(s, 5) + 1: sympy.Max(n, 5) + 1,
        torch_sympy.Min(s, 5): sympy.Min(n, 5),
        torch_sympy.ModularIndexing(s, 2, 3): sympy.Mod(sympy.floor(n / 2), 3),
        s * s - 3: n**2 - 3,
    }
    for theirs, ours in cases.items():
        assert table.expr(theirs, env) == ours
        for value in range(2, 20):
            assert theirs.subs(s, value) == ours.subs(n, value)
    assert table.sizes == {"s0": SizeInfo(2, 64)}


def test_a_size_that_may_be_zero_is_shifted():
    env, u = env_with(0, 9, "u0")
    table = SizeTable()
    assert table.expr(u + 2, env) == size("u0_from_0") + 1
    assert table.sizes == {"u0_from_0": SizeInfo(1, 10)}


def test_unbounded_and_unknown_are_no_sizes():
    env, s = env_with(-sympy.oo, sympy.oo)
    with pytest.raises(NoSize, match="s0 has no lower bound"):
        SizeTable().expr(s, env)
    env, s = env_with(2, 9)
    with pytest.raises(NoSize, match="FloatTrueDiv"):
        SizeTable().expr(torch_sympy.FloatTrueDiv(s, 2), env)


def test_arguments_come_back_exactly():
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    value = Value("x", NoneType())
    generator = torch.Generator()
    arg = ([node, None, 1], (node, [2.5]), {"a": node, "b": slice(0, node, 1)}, torch.float32, generator, "ij,jk")
    ours = to_ir(arg, {node: value}.__getitem__)
    assert ours[0] == (value, None, 1) and ours[3] == Literal("dtype", "f32")
    back = to_fx(ours, {value: node}.__getitem__, template(arg))
    assert back == arg and type(back[0]) is list and type(back[1]) is tuple and back[4] is generator
    assert to_fx(((1, 2), 3), lambda v: v) == [[1, 2], 3]
    with pytest.raises(ValueError, match="Generator"):
        to_fx(ours[4], lambda v: v)


def test_literals_go_both_ways():
    for thing in (*TO_IR, torch.float8_e4m3fnuz, torch.device("cpu"), torch.strided, torch.channels_last):
        assert from_literal(literal(thing)) == thing
    with pytest.raises(ValueError, match="no torch object for the literal dtype f31"):
        from_literal(Literal("dtype", "f31"))


def test_location_is_the_users_innermost_line():
    torch_file = torch.nn.functional.__file__
    trace = (
        'File "/app/train.py", line 3, in main\n    model(x)\n'
        'File "/app/model.py", line 9, in forward\n    return F.softmax(x, -1)\n'
        f'File "{torch_file}", line 2142, in softmax\n    ret = input.softmax(dim)\n'
    )
    stack = {"1": ("L['self'].layers.0", object), "2": ("L['self'].layers.0.attn", object)}
    found = location({"stack_trace": trace, "nn_module_stack": stack})
    assert (found.file, found.line, found.code) == ("/app/model.py", 9, "return F.softmax(x, -1)")
    assert found.module == "layers.0.attn"
    inner = location({"stack_trace": f'File "{torch_file}", line 7, in f\n    g()\n'})
    assert (inner.file, inner.line) == (torch_file, 7)
    assert location({"nn_module_stack": {"1": ("L['args'][0].model", object)}}).module == "model"
    assert str(location({})) == "<unknown>"


def imported(function, *inputs):
    graphs = []
    torch.compile(function, backend=identity_backend("aten", visit=lambda *each: graphs.append(each[1])))(*inputs)
    return graphs[0]


def test_sizes_of_token_ids_are_marked():
    ids = torch.zeros(4, 6, dtype=torch.int64)
    torch._dynamo.mark_dynamic(ids, 0)
    torch._dynamo.mark_dynamic(ids, 1)
    graph = imported(lambda input_ids, w: w[input_ids] * 2, ids, torch.randn(9, 3))
    assert graph.sizes.keys() == {"B", "S"}
    assert [i.type for i in graph.inputs if isinstance(i.type, ScalarType)] == [
        ScalarType("int", size("B")),
        ScalarType("int", size("S")),
    ]


def test_two_candidates_are_not_guessed_between():
    a, b = torch.zeros(4, 6, dtype=torch.int64), torch.zeros(5, 7, dtype=torch.int64)
    for t in (a, b):
        torch._dynamo.mark_dynamic(t, 0)
    graph = imported(lambda left, right: left.sum() + right.sum(), a, b)
    assert graph.sizes and not graph.sizes.keys() & {"B", "S"}


def test_square_ids_have_no_marks():
    ids = torch.zeros(6, 6, dtype=torch.int64)
    torch._dynamo.mark_dynamic(ids, 0)
    torch._dynamo.mark_dynamic(ids, 1)
    graph = imported(lambda input_ids: input_ids + input_ids.t(), ids)
    assert graph.sizes and not graph.sizes.keys() & {"B", "S"}


def test_constants_keep_their_identity():
    seen = {}

    def visit(before, graph, after):
        seen.update(graph.constants)
        seen["module"] = before

    torch.compile(lambda x: x + torch.tensor([2.0]), backend=identity_backend("aten", visit=visit))(torch.randn(1))
    (name,) = seen.keys() - {"module"}
    assert seen[name] is getattr(seen["module"], name)


def test_multiple_results_and_effects():
    def function(x):
        with torch.no_grad():
            values, indices = x.topk(2)
        return values, indices

    graph = imported(function, torch.randn(5))
    names = [op.name for op in graph.ops]
    assert names == [
        "torch.set_grad_enabled",
        "aten.topk.default",
        "py.getitem",
        "py.getitem",
        "torch.set_grad_enabled",
    ]


def test_a_layout_without_type_is_opaque():
    gm = torch.fx.symbolic_trace(lambda x: x)
    next(iter(gm.graph.nodes)).meta["val"] = torch.eye(3).to_sparse()
    assert import_graph(gm).inputs[0].type == OpaqueType("tensor float32 sparse_coo")


def test_a_module_call_is_refused():
    with pytest.raises(ImportFailure, match="call_module"):
        import_graph(torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2))))
