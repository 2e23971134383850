"""Which pairs are hidden, by their places."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy

from benchmarks.cases.onnx_traps.graph import Graph, Port
from benchmarks.cases.onnx_traps.pairs import KEEP, QKV, Build, D, H, Pair, masked, positions, scores, weigh

PAST = (*QKV, Port("past_k", ("b", H, "p", D)), Port("past_v", ("b", H, "p", D)))


def seen(condition: Callable[[Graph, str, str], str]) -> Build:
    """Attention over the pairs (query, key) for which a condition on places holds."""
    return lambda g: masked(g, condition(g, *positions(g)))


def triangle(upper: int, diagonal: int, fill: float = -1e4) -> Build:
    """A mask that Trilu cuts of ones: what it leaves is hidden where ``upper``, else seen."""

    def build(g: Graph) -> str:
        length = g.length("q", 2)
        ones = g("Expand", numpy.ones((1, 1), numpy.float32), g("Concat", length, length, axis=0))
        part = g("Trilu", ones, diagonal, upper=upper)
        hidden = part if upper else g("Sub", 1.0, part)
        return weigh(g, g("Add", scores(g), g("Mul", hidden, fill)))

    return build


def stepped(offset: int, over_past: bool = True) -> Build:
    """Causal attention over past and new keys: a query stands ``offset`` behind its place."""

    def build(g: Graph) -> str:
        k, v = g("Concat", "past_k", "k", axis=2), g("Concat", "past_v", "v", axis=2)
        places = g.line("q", 2, g.length("past_k", 2) if over_past else 0)
        rows = g("Add", g("Unsqueeze", places, [1]), offset)
        keep = g("GreaterOrEqual", rows, g("Unsqueeze", g.line(k, 2), [0]))
        return g("MatMul", g("Softmax", g("Where", keep, scores(g, k=k), -1e9), axis=-1), v)

    return build


def both(operator: str) -> Build:
    """Causal and padding, joined by an operator."""

    def build(g: Graph) -> str:
        rows, columns = positions(g)
        causal = g("GreaterOrEqual", rows, columns)
        return masked(g, g(operator, g("Unsqueeze", causal, [0, 1]), g("Unsqueeze", "keep", [1, 2])))

    return build


def within(width: int) -> Callable[[Graph, str, str], str]:
    """Whether a key is one of the last ``width`` up to a query."""

    def condition(g: Graph, rows: str, columns: str) -> str:
        return g("And", g("GreaterOrEqual", rows, columns), g("Less", g("Sub", rows, columns), width))

    return condition


def causal(g: Graph, rows: str, columns: str) -> str:
    return g("GreaterOrEqual", rows, columns)


PAIRS = [
    Pair("queries at or after zero", seen(lambda g, q, k: g("GreaterOrEqual", q, g("Mul", k, 0))), seen(causal)),
    Pair(
        "queries at or after the key two on",
        seen(lambda g, q, k: g("Or", g("GreaterOrEqual", q, g("Add", k, 2)), g("Equal", q, k))),
        seen(causal),
    ),
    Pair("keys at or after queries", seen(lambda g, q, k: g("GreaterOrEqual", k, q)), seen(causal)),
    Pair("keys strictly before", seen(lambda g, q, k: g("Greater", q, k)), seen(causal)),
    Pair("hidden where it should be seen", seen(lambda g, q, k: g("Not", causal(g, q, k))), seen(causal)),
    Pair("Trilu of the other side", triangle(1, 0), triangle(1, 1)),
    Pair("Trilu one further", triangle(0, 1), triangle(0, 0)),
    Pair("Trilu one less", triangle(1, 2), triangle(1, 1)),
    Pair("a triangle that is a bias", triangle(1, 1, -4.0), triangle(1, 1, -1e9)),
    Pair("one place too far after a past", stepped(1), stepped(0), PAST),
    Pair("the past forgotten", stepped(0, over_past=False), stepped(0), PAST),
    Pair("causal or padding", both("Or"), both("And"), (*QKV, KEEP)),
    Pair("a window one wider", seen(within(4)), seen(within(3))),
    Pair(
        "a window on both sides",
        seen(lambda g, q, k: g("Less", g("Abs", g("Sub", q, k)), 3)),
        seen(within(3)),
    ),
    Pair(
        "causal scores dropped to zero",
        lambda g: weigh(g, g("Where", causal(g, *positions(g)), scores(g), 0.0)),
        lambda g: weigh(g, g("Where", causal(g, *positions(g)), scores(g), -math.inf)),
    ),
]
