"""Which query head reads which key/value head, and of which layer."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.cases.onnx_traps.graph import Graph, Port
from benchmarks.cases.onnx_traps.pairs import QKV, Build, D, H, Pair, scores, weigh

GROUPED = (QKV[0], Port("k", ("b", 2, "s", D)), Port("v", ("b", 2, "s", D)))
LAYERS = (*QKV, *(Port(f"{name}2", ("b", H, "s", D)) for name in "qkv"))
Spread = Callable[[Graph, str], str]


def shared(spread_k: Spread, spread_v: Spread | None = None) -> Build:
    """Attention over two key/value heads that are spread over four."""
    return lambda g: weigh(g, scores(g, k=spread_k(g, "k")), (spread_v or spread_k)(g, "v"))


def interleaved(g: Graph, x: str) -> str:
    """Heads 0, 0, 1, 1."""
    length = g.length(x, 2)
    batch = g.length(x, 0)
    wide = g("Expand", g("Unsqueeze", x, [2]), g("Concat", batch, [2, 2], length, [D], axis=0))
    return g("Reshape", wide, g("Concat", batch, [4], length, [D], axis=0))


def tiled(g: Graph, x: str) -> str:
    """Heads 0, 1, 0, 1."""
    return g("Tile", x, [1, 2, 1, 1])


def joined(g: Graph, x: str) -> str:
    """Heads 0, 1, 0, 1."""
    return g("Concat", x, x, axis=1)


def expanded_first(g: Graph, x: str) -> str:
    """Heads 0, 1, 0, 1: the new dimension stands before the heads."""
    length = g.length(x, 2)
    batch = g.length(x, 0)
    wide = g("Expand", g("Unsqueeze", x, [1]), g("Concat", batch, [2, 2], length, [D], axis=0))
    return g("Reshape", wide, g("Concat", batch, [4], length, [D], axis=0))


def gathered(places: list[int]) -> Spread:
    return lambda g, x: g("Gather", x, places, axis=1)


def two_layers(k: str) -> Build:
    """Two attentions, the second over the keys of ``k``."""
    return lambda g: g("Add", weigh(g, scores(g)), weigh(g, scores(g, "q2", k), "v2"))


PAIRS = [
    Pair("heads tiled", shared(tiled), shared(interleaved), GROUPED),
    Pair("heads joined twice", shared(joined), shared(interleaved), GROUPED),
    Pair("heads expanded before the dimension", shared(expanded_first), shared(interleaved), GROUPED),
    Pair("heads gathered in another order", shared(gathered([0, 1, 1, 0])), shared(gathered([0, 0, 1, 1])), GROUPED),
    Pair("keys tiled and values interleaved", shared(tiled, interleaved), shared(interleaved), GROUPED),
    Pair("keys of another layer", two_layers("k"), two_layers("k2"), LAYERS, attentions=2),
]
