"""What a score is: scale, bias, cap, and in which order."""

from __future__ import annotations

import math

import numpy

from benchmarks.cases.onnx_traps.graph import Graph, Port
from benchmarks.cases.onnx_traps.pairs import QKV, SCALE, Build, D, H, Pair, positions, scores, weigh

SQUARE = tuple(Port(name, (H, H, "s", D)) for name in "qkv")
"""As many batches as heads."""


def causal_number(g: Graph, fill: float) -> str:
    """A number for each pair [s, s]: 0, or ``fill`` for keys after the query."""
    return g("Where", g("GreaterOrEqual", *positions(g)), 0.0, fill)


def capped(g: Graph, made: str) -> str:
    return g("Mul", g("Tanh", g("Div", made, 2.0)), 2.0)


def sloped(shape: tuple[int, ...]) -> Build:
    """ALiBi: a slope times how far a key is before a query."""

    def build(g: Graph) -> str:
        rows, columns = positions(g)
        far = g("Cast", g("Sub", columns, rows), to=1)
        slopes = numpy.array([0.5, 0.25, 0.125, 2.0], numpy.float32).reshape(shape)
        return weigh(g, g("Add", scores(g), g("Mul", far, slopes)))

    return build


def tabled(swapped: bool) -> Build:
    """A bias by distance, gathered of a table for distances from −8 to 8."""

    def build(g: Graph) -> str:
        rows, columns = positions(g)
        far = g("Sub", columns, rows) if swapped else g("Sub", rows, columns)
        places = g("Add", g("Max", g("Min", far, 8), -8), 8)
        bias = g("Transpose", g("Gather", "bias", places, axis=0), perm=[2, 0, 1])
        return weigh(g, g("Add", scores(g), g("Unsqueeze", bias, [0])))

    return build


PAIRS = [
    Pair(
        "multiplied by the root of the width",
        lambda g: weigh(g, scores(g, scale=1 / SCALE)),
        lambda g: weigh(g, g("Div", scores(g, scale=1.0), math.sqrt(D))),
    ),
    Pair(
        "a scale for each key",
        lambda g: weigh(g, g("Mul", scores(g, scale=1.0), g("Unsqueeze", "c", [1, 2]))),
        lambda g: weigh(g, g("Mul", scores(g, scale=1.0), g("Unsqueeze", g("Slice", "c", [0], [1], [1]), [1, 2]))),
        (*QKV, Port("c", ("b", "s"))),
    ),
    Pair(
        "a scale for each feature",
        lambda g: weigh(g, scores(g, g("Mul", "q", numpy.linspace(0.1, 2, D, dtype=numpy.float32)), scale=1.0)),
        lambda g: weigh(g, scores(g, g("Mul", "q", numpy.full(D, 0.3, numpy.float32)), scale=1.0)),
    ),
    Pair(
        "scale on both operands",
        lambda g: weigh(g, scores(g, g("Mul", "q", SCALE), g("Mul", "k", SCALE), 1.0)),
        lambda g: weigh(g, scores(g, g("Mul", "q", SCALE**0.5), g("Mul", "k", SCALE**0.5), 1.0)),
    ),
    Pair(
        "scale after the mask",
        lambda g: weigh(g, g("Mul", g("Add", scores(g, scale=1.0), causal_number(g, -6.0)), SCALE)),
        lambda g: weigh(g, g("Add", scores(g), causal_number(g, -6.0))),
    ),
    Pair(
        "softcap after the mask",
        lambda g: weigh(g, capped(g, g("Add", scores(g), causal_number(g, -1e9)))),
        lambda g: weigh(g, g("Add", capped(g, scores(g)), causal_number(g, -1e9))),
    ),
    Pair(
        "a cap without its factor",
        lambda g: weigh(g, g("Tanh", g("Div", scores(g), 2.0))),
        lambda g: weigh(g, capped(g, scores(g))),
    ),
    Pair("slopes by batch", sloped((4, 1, 1, 1)), sloped((1, 4, 1, 1)), SQUARE),
    Pair("distance the other way round", tabled(swapped=True), tabled(swapped=False), (*QKV, Port("bias", (17, H)))),
    Pair(
        "a score for a sum of squares",
        lambda g: weigh(g, g("Sub", scores(g), g("ReduceSum", g("Mul", "q", "q"), [-1], keepdims=1))),
        lambda g: weigh(g, scores(g)),
        equal=True,
    ),
]
