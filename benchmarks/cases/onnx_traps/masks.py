"""Which pairs are hidden, by a mask that is loaded."""

from __future__ import annotations

import math

import numpy

from benchmarks.cases.onnx_traps.graph import Graph, Port
from benchmarks.cases.onnx_traps.pairs import KEEP, QKV, Build, Pair, masked, scores, weigh

TABLE = Port("table", ("s", "s"), "bool")
"""A mask that is no formula."""


def padding(axes: list[int]) -> Build:
    return lambda g: masked(g, g("Unsqueeze", "keep", axes))


def number(g: Graph, hidden: float) -> str:
    """The padding as numbers [b, 1, 1, s]: 0, or ``hidden``."""
    return g("Unsqueeze", g("Where", "keep", 0.0, hidden), [1, 2])


def dead(fill: float) -> Build:
    """A mask that is added and hides a whole row by this fill."""

    def build(g: Graph) -> str:
        keep = g("And", "table", g("Less", g("Unsqueeze", g.line("q", 2), [1]), 3))
        return weigh(g, g("Add", scores(g), g("Where", keep, 0.0, fill)))

    return build


def guarded(guard: float, swapped: bool) -> Build:
    """Weights of rows that see nothing are NaN, and a guard puts a number there."""

    def build(g: Graph) -> str:
        keep = g("And", "table", g("Less", g("Unsqueeze", g.line("q", 2), [1]), 3))
        weights = g("Softmax", g("Where", keep, scores(g), -math.inf), axis=-1)
        sides = (weights, guard) if swapped else (guard, weights)
        return g("MatMul", g("Where", g("IsNaN", weights), *sides), "v")

    return build


def extended(swapped: bool) -> Build:
    """(1 − mask)·−10000 is added, as BERT's exporters write it; or the difference the other way round."""

    def build(g: Graph) -> str:
        mask = g("Unsqueeze", g("Cast", "keep", to=1), [1, 2])
        less = g("Sub", mask, 1.0) if swapped else g("Sub", 1.0, mask)
        return weigh(g, g("Add", scores(g), g("Mul", less, -10000.0)))

    return build


PAIRS = [
    Pair("padding on the query axis", padding([1, 3]), padding([1, 2]), (*QKV, KEEP)),
    Pair(
        "padding of the heads",
        lambda g: masked(g, g("Unsqueeze", "heads", [0, 2, 3])),
        lambda g: masked(g, g("Unsqueeze", g("Gather", "heads", 0, axis=0), [0])),
        (*QKV, Port("heads", (4,), "bool")),
    ),
    Pair(
        "ones and zeros added",
        lambda g: weigh(g, g("Add", scores(g), g("Cast", "table", to=1))),
        lambda g: weigh(g, g("Add", scores(g), g("Where", "table", 0.0, -math.inf))),
        (*QKV, TABLE),
    ),
    Pair(
        "branches of Where swapped",
        lambda g: weigh(g, g("Where", "table", -1e9, scores(g))),
        lambda g: weigh(g, g("Where", "table", scores(g), -1e9)),
        (*QKV, TABLE),
    ),
    Pair(
        "a mask multiplied",
        lambda g: weigh(g, g("Mul", scores(g), g("Cast", "table", to=1))),
        lambda g: weigh(g, g("Where", "table", scores(g), -math.inf)),
        (*QKV, TABLE),
    ),
    Pair(
        "a mask added to weights",
        lambda g: g("MatMul", g("Add", g("Softmax", scores(g), axis=-1), number(g, -2.0)), "v"),
        lambda g: weigh(g, g("Add", scores(g), number(g, -2.0))),
        (*QKV, KEEP),
    ),
    Pair(
        "weights masked",
        lambda g: g("MatMul", g("Where", "table", g("Softmax", scores(g), axis=-1), 0.0), "v"),
        lambda g: weigh(g, g("Where", "table", scores(g), -math.inf)),
        (*QKV, TABLE),
    ),
    Pair(
        "a loaded mask transposed",
        lambda g: masked(g, g("Transpose", "table", perm=[1, 0])),
        lambda g: masked(g, "table"),
        (*QKV, TABLE),
    ),
    Pair("dead rows by -inf", dead(-math.inf), dead(-10000.0), (*QKV, TABLE)),
    Pair("a fill that is a bias", dead(-3.0), dead(float(numpy.finfo(numpy.float32).min)), (*QKV, TABLE)),
    Pair("NaN replaced by one", guarded(1.0, swapped=False), guarded(0.0, swapped=False), (*QKV, TABLE)),
    Pair("all but NaN replaced", guarded(0.0, swapped=True), guarded(0.0, swapped=False), (*QKV, TABLE)),
    Pair("a mask less one", extended(swapped=True), extended(swapped=False), (*QKV, KEEP)),
]
