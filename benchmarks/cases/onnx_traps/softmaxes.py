"""What is taken of the scores, and along which dimension."""

from __future__ import annotations

import numpy

from benchmarks.cases.onnx_traps.graph import Graph
from benchmarks.cases.onnx_traps.pairs import Build, H, Pair, scores, weigh


def along(axis: int | None, function: str = "Softmax") -> Build:
    def build(g: Graph) -> str:
        attributes = {} if axis is None else {"axis": axis}
        return g("MatMul", g(function, scores(g), **attributes), "v")

    return build


def as_rows(g: Graph) -> str:
    """A softmax of [b·H·s, s] by the default of operator sets 11 and 12: from dimension 1 on."""
    made = scores(g)
    length = g.length("q", 2)
    rows = g("Reshape", made, g("Concat", [-1], length, axis=0))
    return g("MatMul", g("Reshape", g("Softmax", rows), g("Shape", made)), "v")


def written(total: int, shift: int = -1) -> Build:
    """exp(s − max)/sum(exp), the maximum and the sum along these dimensions."""

    def build(g: Graph) -> str:
        made = scores(g)
        grown = g("Exp", g("Sub", made, g("ReduceMax", made, axes=[shift], keepdims=1)))
        return g("MatMul", g("Div", grown, g("ReduceSum", grown, [total], keepdims=1)), "v")

    return build


def with_sink(start: int, end: int) -> Build:
    """A column for each head joined to the scores, and as many columns of the weights."""

    def build(g: Graph) -> str:
        made = scores(g)
        sink = numpy.linspace(0, 3, H, dtype=numpy.float32).reshape(1, H, 1, 1)
        shape = g("Concat", g("Slice", g("Shape", made), [0], [3]), [1], axis=0)
        weights = g("Softmax", g("Concat", made, g("Expand", sink, shape), axis=-1), axis=-1)
        return g("MatMul", g("Slice", weights, [start], [end], [-1]), "v")

    return build


def shown(g: Graph) -> tuple[str, str]:
    weights = g("Softmax", scores(g), axis=-1)
    return g("MatMul", weights, "v"), weights


FAR = 2**31 - 1

PAIRS = [
    Pair("softmax over the queries", along(-2), along(-1)),
    Pair("softmax over the heads", along(1), along(3)),
    Pair("a softmax from dimension 1 on", along(None), along(3), opset=11),
    Pair("a softmax from dimension 2 on", along(2), along(-1), opset=12),
    Pair("rows flattened before an old softmax", along(1), as_rows, opset=12),
    Pair("a logarithm of the weights", along(-1, "LogSoftmax"), along(-1)),
    Pair("the greatest only", along(-1, "Hardmax"), along(-1)),
    Pair(
        "a softmax of logarithms",
        lambda g: weigh(g, g("Log", g("Add", g("Relu", scores(g)), 1.0))),
        lambda g: weigh(g, g("Add", g("Relu", scores(g)), 1.0)),
    ),
    Pair("exponentials summed over the queries", written(-2), written(-1)),
    Pair("a maximum of the queries", written(-1, -2), written(-1)),
    Pair("the first key dropped instead of the sink", with_sink(1, FAR), with_sink(0, -1)),
    Pair("weights that are an output", shown, lambda g: (weigh(g, scores(g)), scores(g)), equal=True),
    Pair(
        "weights squared",
        lambda g: (lambda w: g("MatMul", g("Mul", w, w), "v"))(g("Softmax", scores(g), axis=-1)),
        along(-1),
    ),
]
