"""Property: any graph prints, reads back equal, prints the same again; a well-formed one verifies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from attnc.ir import (
    AttentionSpec,
    DType,
    Fill,
    Graph,
    Literal,
    Location,
    NoneType,
    OpaqueType,
    ScalarType,
    SizeInfo,
    TensorType,
    TupleType,
    Value,
    difference,
    index,
    parse_graph,
    print_graph,
    score,
    size,
    verify,
)

SIZES = ("B", "S", "s0")
FLOATS = st.sampled_from([DType.F32, DType.BF16, DType.F16, DType.F64])
NAMES = st.sampled_from(["x", "add", "p_layer.0.weight", "0", "weird name", 'quo"te', "ünï", "%", "line\nbreak"])
TEXTS = st.text(max_size=8) | st.sampled_from(['a "b"', "\\", "\n", "\u2028", "\ud800", "y = x @ w.T"])


def sums(parts: st.SearchStrategy[sympy.Expr]) -> st.SearchStrategy[sympy.Expr]:
    """Sums, products, floor divisions and remainders."""
    divisor = st.sampled_from([2, 4, 7]).map(sympy.Integer)
    return st.one_of(
        st.builds(sympy.Add, parts, parts),
        st.builds(sympy.Mul, parts, parts),
        st.builds(lambda x, y: sympy.floor(x / y), parts, divisor),
        st.builds(sympy.Mod, parts, divisor),
    )


LEAVES = st.sampled_from([size(name) for name in SIZES]) | st.integers(1, 9).map(sympy.Integer)
DIMS = st.integers(0, 64) | st.recursive(LEAVES, sums, max_leaves=4).map(lambda e: int(e) if e.is_Integer else e)
ATOMS = st.sampled_from(["B", "S", "Q", "K", 4, 16])


@st.composite
def tensor_types(draw: st.DrawFn) -> TensorType:
    shape = tuple(draw(st.lists(DIMS, max_size=4)))
    per_dim = st.tuples(*(st.lists(ATOMS, max_size=2).map(tuple) for _ in shape))
    return TensorType(
        draw(st.sampled_from(list(DType))),
        shape,
        draw(st.sampled_from(["cpu", "cuda:0", "meta"])),
        draw(st.none() | st.tuples(*(DIMS for _ in shape))),
        draw(st.none() | per_dim),
    )


PLAIN_TYPES = st.one_of(
    tensor_types(),
    st.builds(ScalarType, st.sampled_from(["int", "float", "bool"]), st.none() | DIMS),
    st.just(NoneType()),
    st.builds(OpaqueType, TEXTS),
)
TYPES = PLAIN_TYPES | st.lists(PLAIN_TYPES, max_size=3).map(lambda types: TupleType(tuple(types)))
LITERALS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    TEXTS,
    st.builds(
        Literal, st.sampled_from(["dtype", "device", "layout"]), st.sampled_from(["float32", "cuda:0", "strided"])
    ),
)
LOCATIONS = st.just(Location()) | st.builds(Location, TEXTS, st.integers(0, 9999), TEXTS, TEXTS)


@dataclass(frozen=True)
class Reference:
    """Stands for one of the values defined so far; strategies made once draw faster than one for each op."""

    number: int

    def among(self, values: list[Value]) -> Value | None:
        return values[self.number % len(values)] if values else None


ARGS = st.recursive(
    LITERALS | st.builds(Reference, st.integers(0, 99)), lambda arg: st.lists(arg, max_size=3).map(tuple), max_leaves=4
)
ARG_LISTS = st.lists(ARGS, max_size=3).map(tuple)
KWARGS = st.dictionaries(st.sampled_from(["dim", "out", "in", "dtype"]), ARGS, max_size=2)
ATTRS = st.dictionaries(st.sampled_from(["name", "loc", "axis"]), LITERALS, max_size=2)
RESULTS = st.lists(TYPES, max_size=2)
OP_NAMES = st.sampled_from(["aten.add.Tensor", "aten._assert.default", "transformers.mixer", "onnx.If"])


def resolved(arg: Any, graph: Graph) -> Any:
    """The argument with values of ``graph`` for references."""
    if isinstance(arg, Reference):
        return arg.among([*graph.inputs, *(r for op in graph.ops for r in op.results)])
    return tuple(resolved(item, graph) for item in arg) if isinstance(arg, tuple) else arg


@st.composite
def specs(draw: st.DrawFn, dtype: DType) -> AttentionSpec:
    """An attention over q[b, h, q, d] and grouped k, v with a boolean and an integer side."""
    q, k, length = index.axis("q"), index.axis("k"), size("S")
    seen = sympy.Ne(index.load("t0", index.axis("b"), k), 0)
    same = sympy.Eq(index.load("t1", q), index.load("t1", k))
    conditions = [k <= q, sympy.Gt(k - q, -16), seen, same, sympy.Or(k < 4, sympy.Eq(sympy.Mod(k, 4), 0)), k < length]
    mask = sympy.And(*draw(st.lists(st.sampled_from(conditions), max_size=3)))
    visible = score.qk(dtype)
    for _ in range(draw(st.integers(0, 3))):
        number = score.const(draw(st.floats(allow_nan=False, allow_infinity=False, width=16)), dtype)
        visible = score.binary(draw(st.sampled_from(["add", "mul", "sub", "div"])), visible, number)
        visible = draw(st.sampled_from([visible, score.unary("tanh", visible), score.cast(visible, DType.F32)]))
    fill = draw(st.sampled_from([Fill(), Fill(-1e9), Fill(-3.4028234663852886e38)]))
    lost = score.const(float("-inf") if fill.value is None else fill.value, visible.dtype)
    sink = draw(st.none() | st.just(score.const(0.5, DType.F32)))
    return AttentionSpec(
        q_axes=("b", "h", "q", "d"),
        k_axes=("b", "k", "d"),
        v_axes=("b", "k", "e"),
        out_axes=draw(st.permutations(["b", "h", "q", "e"]).map(tuple)),
        score=score.where(score.index(mask, DType.B1), visible, lost),
        visible=visible,
        mask=mask,
        fill=fill,
        out_dtype=draw(FLOATS),
        softmax_dtype=DType.F32,
        weight=draw(st.none() | st.just(score.const(0.9, DType.F32))),
        softmax="plain" if sink is None else "sink",
        sink=sink,
        dead_rows=draw(st.sampled_from(["source", "zero"])),
        sizes=("S",),
        returns_lse=draw(st.booleans()),
    )


def add_attention(draw: st.DrawFn, graph: Graph) -> None:
    """An ``attn.attention`` with inputs of its own."""
    from attnc.ir.rewriter import infer_types

    dtype, batch, length = draw(FLOATS), size("B"), size("S")
    spec = draw(specs(dtype))
    q, k, v = (
        graph.add_input(name, TensorType(dtype, shape))
        for name, shape in (("q", (batch, 4, length, 16)), ("k", (batch, length, 16)), ("v", (batch, length, 8)))
    )
    sides = (
        graph.add_input("mask", TensorType(DType.B1, (batch, length))),
        graph.add_input("ids", TensorType(DType.I64, (length,))),
    )
    args = (q, k, v, sides, (draw(st.just(7) | st.just(graph.add_input("n", ScalarType("int", length)))),))
    types = infer_types("attn.attention", args, {"spec": spec})
    graph.create("attn.attention", args, types, attrs={"spec": spec}, loc=draw(LOCATIONS))


@st.composite
def graphs(draw: st.DrawFn, depth: int = 1) -> Graph:
    graph = Graph(
        draw(NAMES), sizes={name: SizeInfo(draw(st.integers(0, 2)), draw(st.none() | st.just(9))) for name in SIZES}
    )
    for _ in range(draw(st.integers(0, 3))):
        graph.add_input(draw(NAMES), draw(TYPES))
    graph.constants["unread"] = draw(st.sampled_from([object(), np.array(True), np.array([[1 - 2j]])]))
    graph.constants["w"] = draw(st.sampled_from([object(), np.array([0.1, -np.inf], np.float32)]))
    graph.create("ir.constant", (), [TensorType(DType.F32, (2,))], attrs={"name": "w"})
    for _ in range(draw(st.integers(0, 4))):
        kwargs = {name: resolved(arg, graph) for name, arg in draw(KWARGS).items()}
        args, attrs = resolved(draw(ARG_LISTS), graph), draw(ATTRS)
        op = graph.create(draw(OP_NAMES), args, draw(RESULTS), kwargs=kwargs, attrs=attrs, loc=draw(LOCATIONS))
        if depth and draw(st.integers(0, 4)) == 0:
            op.regions["body"] = draw(graphs(depth=0))
    if draw(st.booleans()):
        add_attention(draw, graph)
    graph.outputs = resolved(draw(ARG_LISTS), graph)
    return graph


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_round_trip(graph: Graph) -> None:
    verify(graph)
    text = print_graph(graph)
    again = parse_graph(text)
    assert difference(graph, again) is None
    assert print_graph(again) == text
