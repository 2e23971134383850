"""Declared ops: what each accepts, refuses and infers."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from attnc.ir import DType, Graph, ScalarType, SizeInfo, TensorType, TupleType, Type, parse_graph, print_graph, size
from attnc.ir.opdef import OpDef, Registry
from attnc.ir.ops import REGISTRY
from attnc.ir.ops.effects import is_effect, is_pure, traits
from attnc.ir.rewriter import infer_types
from attnc.ir.verifier import problems

S = size("S")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("q = [b, h, g, q, d]", "q = [b, h, g, q, e]", "q[b, h, g, q, e] must have the axes d, q"),
        ("k = [b, h, k, d]", "k = [b, h, q, d]", "k[b, h, q, d] must have the axes d, k"),
        ("v = [b, h, k, e]", "v = [b, h, k, d]", "v[b, h, k, d] must have the axes e, k"),
        ("out = [b, q, h, g, e]", "out = [b, h, g, e]", "out[b, h, g, e] must have the axes e, q"),
        ("out = [b, q, h, g, e]", "out = [b, q, h, e]", "outer axes of q, k, v (b, g, h) and of out (b, h) differ"),
        ("k = [b, h, k, d]", "k = [b, b, k, d]", "an axis appears twice in k"),
        ("q = [b, h, g, q, d]", "q = [b, h, g, i, q, d]", "outer axes"),
        ("k = [b, h, k, d]", "k = [h, k, d]", "k has rank 4 but 3 axes"),
        ("%v: f32[B, 2, S, 8]", "%v: f32[B, 3, S, 8]", "axis h has length 3 in v and 2"),
        ("%k: f32[B, 2, S, 16]", "%k: f32[B, 2, 2*S, 16]", "axis k has length S in v and 2*S"),
        ("%o: f32[B, S, 2, 3, 8]", "%o: f32[B, S, 2, 8, 3]", "out must be a contiguous f32[B, S, 2, 3, 8]"),
        ("%o: f32[B, S, 2, 3, 8]", "%o: f16[B, S, 2, 3, 8]", "out must be a contiguous f32"),
        ("%o: f32[B, S, 2, 3, 8]", "%o: f32[B, S, 2, 3, 8] strides(1, 1, 1, 1, 1)", "out must be a contiguous f32"),
        ("%l: f32[B, S, 2, 3]", "%l: f64[B, S, 2, 3]", "lse must be a contiguous f32[B, S, 2, 3]"),
        ("    lse = True\n", "", "2 results, expected 1"),
        ("%bias: f32[3, S]", "%bias: f32[S]", "loads t1 with 2 indices, but its rank is 1"),
        ("[%n]", "[]", "0 size arguments for the 1 sizes"),
        ("[%n]", "[%pad]", "a size argument is neither an int nor a host int"),
        ("fill = finite(-1000000000.0)", "fill = finite(-inf)", "the fill -inf is not finite"),
        ("softmax = sink", "softmax = hard", "softmax form 'hard'"),
        ("softmax = sink", "softmax = plain", "the softmax form is sink exactly where"),
        ("    sink = t1[g, 0]\n", "", "the softmax form is sink exactly where"),
        ("    sink = t1[g, 0]\n", "    sink = t1[g, k]\n", "the sink formula uses the axis k"),
        ("    sink = t1[g, 0]\n", "    sink = qk\n", "the sink formula reads qk"),
        ("softmax = sink f32", "softmax = sink i32", "must be floats"),
        ("    lse = True\n", "    lse = True\n    dead_rows = none\n", "dead_rows 'none'"),
        ("mask = (k <= q) &", "mask = (k <= d) &", "the mask formula uses the axis d"),
        ("mask = (k <= q) & (t0[b, k] != 0) & (k < S)", "mask = k + q", "the mask is not a truth value"),
        ("visible = qk * 0.25 + t1[g, k]", "visible = k <= q", "the visible formula is b1, not a float"),
    ],
)
def test_attention_refuses(gqa: str, old: str, new: str, message: str) -> None:
    assert old in gqa
    assert message in found(parse_graph(gqa.replace(old, new, 1)))


def found(graph: Graph) -> str:
    return " ".join(problem.message for problem in problems(graph))


def respecified(gqa: str, **fields: Any) -> Graph:
    """The attention with other fields in its spec."""
    graph = parse_graph(gqa)
    graph.ops[0].attrs["spec"] = dataclasses.replace(graph.ops[0].attrs["spec"], **fields)
    return graph


def with_sides(gqa: str, *sides: Any) -> Graph:
    graph = parse_graph(gqa)
    op = graph.ops[0]
    op.set_args((*op.args[:3], tuple(graph.inputs[s] if isinstance(s, int) else s for s in sides), op.args[4]))
    return graph


PAD, BIAS = 3, 4


def test_attention_refuses_sides_that_formulas_do_not_fit(gqa: str) -> None:
    assert "the score formula loads t1, but there are 1 side operands" in found(with_sides(gqa, PAD))
    assert "argument sides must be a list of tensors" in found(with_sides(gqa, PAD, "text"))
    wrong = found(with_sides(gqa, BIAS, PAD))
    assert "the mask formula loads t0 as an integer or boolean, but it is f32" in wrong
    assert "the score formula loads t1 as f32, but it is i64" in wrong


def test_attention_refuses_undeclared_sizes(gqa: str) -> None:
    assert "the mask formula uses the size S, which sizes = [] lacks" in found(respecified(gqa, sizes=()))
    assert "a size appears twice" in found(respecified(gqa, sizes=("S", "S")))
    assert "'h' names both an axis and a size" in found(respecified(gqa, sizes=("S", "h")))


@pytest.mark.parametrize("name", ["t0", "qk", "lambda", "a b"])
def test_attention_refuses_axis_names_that_formulas_cannot_hold(gqa: str, name: str) -> None:
    graph = respecified(gqa, q_axes=("b", "h", name, "q", "d"), out_axes=("b", "q", "h", name, "e"))
    assert f"{name!r} cannot name an axis" in found(graph)


def test_attention_infers_its_results(gqa: str) -> None:
    op = parse_graph(gqa).ops[0]
    assert infer_types(op.name, op.args, op.attrs) == tuple(r.type for r in op.results)


ROPE = """graph @f(%x: bf16[B, 4, S, 64], %p: i64[B, 1, S], %w: f32[16]) sizes(B in [1, 8], S in [1, inf]) {
  %y: bf16[B, 4, S, 64] = attn.rope(%x, [%p], [%w]) {style = "half", rotary_dim = 32, attention_factor = 1.0, ROUNDED}
  return %y
}
""".replace("ROUNDED", "rounded = False")


def test_rope() -> None:
    graph = parse_graph(ROPE)
    assert problems(graph) == []
    assert print_graph(graph) == ROPE
    assert infer_types("attn.rope", graph.ops[0].args, {}) == (graph.ops[0].result.type,)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"half"', '"quarter"', "style 'quarter'"),
        ("rotary_dim = 32", "rotary_dim = 128", "rotary_dim 128 must be even"),
        ("rotary_dim = 32", "rotary_dim = 16", "have one dimension of length rotary_dim / 2 = 8"),
        ("%w: f32[16]", "%w: i64[16]", "inv_freqs must be float"),
        ("%p: i64[B, 1, S]", "%p: i64[B, 2, S]", "positions must be real and broadcast"),
        ("%p: i64[B, 1, S]", "%p: c64[B, 1, S]", "positions must be real and broadcast"),
        ("[%p]", "[%p, %p]", "positions and inv_freqs must be lists of one length"),
        ("[%p], [%w]", "[], []", "positions and inv_freqs must be lists of one length, at least 1"),
        ("[%p]", "%p", "argument positions must be a list of tensors"),
        ("%y: bf16[B, 4, S, 64]", "%y: bf16[B, 4, S, 32]", "the result must have x's shape"),
        ("%y: bf16", "%y: i64", "the result must have x's dtype or a wider float dtype"),
        ("%x: bf16[B, 4, S, 64]", "%x: f32[B, 4, S, 64]", "the result must have x's dtype or a wider float dtype"),
        ("%x: bf16", "%x: i64", "x must be a float tensor"),
        ("attention_factor = 1.0", "attention_factor = 1", "attribute attention_factor must be float"),
    ],
)
def test_rope_refuses(old: str, new: str, message: str) -> None:
    assert old in ROPE
    assert message in found(parse_graph(ROPE.replace(old, new, 1)))


def test_rope_takes_several_positions_and_widens() -> None:
    inputs = ROPE.replace("%w: f32[16]", "%w: f32[16], %v: f32[16], %r: f32[S]")
    text = inputs.replace("[%p], [%w]", "[%p, %r], [%w, %v]")
    assert problems(parse_graph(text.replace("%y: bf16", "%y: f32"))) == []


TABLES = ROPE.replace("%p: i64[B, 1, S], %w: f32[16]", "%c: f32[B, 1, S, 16], %s: f32[S, 32]").replace(
    "[%p], [%w]", "[], [], [%c, %s]"
)


def test_rope_takes_tables_for_pairs_or_features() -> None:
    graph = parse_graph(TABLES)
    assert problems(graph) == []
    assert print_graph(graph) == TABLES


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[%c, %s]", "[%c]", "tables are two, cosines and sines"),
        ("[], [], [%c, %s]", "[%c], [%s], [%c, %s]", "stand in place of positions and inv_freqs"),
        ("[%c, %s]", "[]", "positions and inv_freqs must be lists of one length, at least 1"),
        ("%s: f32[S, 32]", "%s: f32[S, 31]", "tables must be float and have 16 or 32 features"),
        ("%s: f32[S, 32]", "%s: i64[S, 32]", "tables must be float and have 16 or 32 features"),
        ("%s: f32[S, 32]", "%s: f32[2, 32]", "tables must broadcast to x but for the last dimension"),
    ],
)
def test_rope_refuses_tables(old: str, new: str, message: str) -> None:
    assert old in TABLES
    assert message in found(parse_graph(TABLES.replace(old, new, 1)))


def test_getitem() -> None:
    graph = Graph(sizes={"S": SizeInfo()})
    pair = graph.add_input("pair", TupleType((TensorType(DType.F32, (S,)), ScalarType("int"))))
    graph.create("py.getitem", [pair, 0], [TensorType(DType.F32, (S,), strides=(1,))])
    graph.create("py.getitem", [pair, -1], [ScalarType("int")])
    assert problems(graph) == []
    graph.create("py.getitem", [pair, 1], [ScalarType("float")])
    graph.create("py.getitem", [pair, 2], [ScalarType("float")])
    assert [p.message for p in problems(graph)] == [
        "the result's type is not that of element 1",
        "index 2 of a tuple of 2",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("add", "S + 3"),
        ("sub", "S - 3"),
        ("mul", "3*S"),
        ("floordiv", "S // 3"),
        ("mod", "S % 3"),
        ("sym_max", "max(3, S)"),
    ],
)
def test_integer_arithmetic_is_inferred(name: str, text: str) -> None:
    from attnc.ir.typetext import show_type

    graph = Graph()
    n = graph.add_input("n", ScalarType("int", S))
    (type,) = infer_types(f"py.{name}", (n, 3), {})
    assert show_type(type) == f"int<{text}>"
    assert infer_types(f"py.{name}", (graph.add_input("m", ScalarType("int")), 3), {}) == (ScalarType("int"),)
    assert infer_types(f"py.{name}", (n, 0.5), {}) == (ScalarType("float"),)


def test_ops_without_a_result_rule_say_so() -> None:
    with pytest.raises(ValueError, match=r"aten\.relu\.default has no declared result rule"):
        infer_types("aten.relu.default", (), {})


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "results", "trait"),
    [
        ("aten.add.Tensor", (), {}, 1, "pure"),
        ("aten.add_.Tensor", (), {}, 1, "effect"),
        ("aten.copy_.default", (), {}, 1, "effect"),
        ("aten.__ior__.Tensor", (), {}, 1, "effect"),
        ("aten.__or__.Tensor", (), {}, 1, "pure"),
        ("aten.add.out", (), {"out": 1}, 1, "effect"),
        ("aten._assert_scalar.default", (), {}, 0, "effect"),
        ("aten.rand.default", (), {}, 1, "random"),
        ("aten.scaled_dot_product_attention.default", (), {}, 1, "pure"),
        ("aten.scaled_dot_product_attention.default", (1, 2, 3, 4, 0.1), {}, 1, "random"),
        ("aten.scaled_dot_product_attention.default", (), {"dropout_p": 0.1}, 1, "random"),
        ("transformers.mixer", (), {}, 1, "effect"),
        ("attn.rope", (), {}, 1, "pure"),
        ("torch.set_grad_enabled", (), {}, 0, "effect"),
    ],
)
def test_traits(name: str, args: tuple[float, ...], kwargs: dict[str, int], results: int, trait: str) -> None:
    types: list[Type] = [ScalarType("int")] * results
    op = Graph().create(name, args, types, kwargs=kwargs)
    assert [t.value for t in traits(op)] == [trait]
    assert is_pure(op) == (trait == "pure")
    assert is_effect(op) == (trait == "effect")


def test_an_op_is_declared_once() -> None:
    with pytest.raises(ValueError, match=r"op a\.b is declared twice"):
        Registry.of([OpDef("a.b", ""), OpDef("a.b", "")], closed=())


def test_every_op_with_a_rule_is_documented() -> None:
    assert all(op.summary and all(o.doc for o in op.operands) for op in REGISTRY.ops.values())
