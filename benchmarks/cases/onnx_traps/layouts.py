"""Where heads, positions and features lie."""

from __future__ import annotations

from benchmarks.cases.onnx_traps.graph import Graph, Port
from benchmarks.cases.onnx_traps.pairs import QKV, SCALE, Build, D, H, Pair, scores, weigh

PACKED = tuple(Port(name, ("b", "s", H * D)) for name in "qkv")
EIGHT = tuple(Port(name, ("b", H, D, D)) for name in "qkv")
"""As many positions as features."""
SPELLING = (("bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd"), QKV)


def split(shape: list[int], order: list[int]) -> Build:
    """Packed inputs [b, s, H·D] split by a shape and transposed by an order."""

    def build(g: Graph) -> str:
        q, k, v = (g("Transpose", g("Reshape", name, shape), perm=order) for name in "qkv")
        made = g("Transpose", weigh(g, scores(g, q, k), v), perm=[0, 2, 1, 3])
        return g("Reshape", made, [0, 0, H * D])

    return build


def joined(order: list[int]) -> Build:
    """Heads split as usual, and joined after a transposition."""

    def build(g: Graph) -> str:
        q, k, v = (g("Transpose", g("Reshape", name, [0, 0, H, D]), perm=[0, 2, 1, 3]) for name in "qkv")
        made = g("Transpose", weigh(g, scores(g, q, k), v), perm=order)
        return g("Reshape", made, g("Shape", "q"))

    return build


def transposed(times: int) -> Build:
    """Keys transposed this often."""

    def build(g: Graph) -> str:
        k = "k"
        for _ in range(times):
            k = g("Transpose", k, perm=[0, 1, 3, 2])
        return weigh(g, g("Mul", g("MatMul", "q", k), SCALE))

    return build


def spelled(first: str, second: str) -> Build:
    """Two Einsums."""
    return lambda g: g(
        "Einsum", g("Softmax", g("Mul", g("Einsum", "q", "k", equation=first), SCALE), axis=-1), "v", equation=second
    )


USUAL = spelled("bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd")

PAIRS = [
    Pair("features before heads", split([0, 0, D, H], [0, 3, 1, 2]), split([0, 0, H, D], [0, 2, 1, 3]), PACKED),
    Pair("heads cut out of positions", split([0, H, -1, D], [0, 1, 2, 3]), split([0, -1, H, D], [0, 2, 1, 3]), PACKED),
    Pair("heads joined without a transposition", joined([0, 1, 2, 3]), joined([0, 2, 1, 3]), PACKED),
    Pair("keys transposed twice", transposed(2), transposed(1), EIGHT),
    Pair("keys not transposed", transposed(0), transposed(3), EIGHT),
    Pair("scores spelled the other way", spelled("bhqd,bhkd->bhkq", "bhqk,bhkd->bhqd"), USUAL),
    Pair("weights summed over the queries", spelled("bhqd,bhkd->bhqk", "bhqk,bhqd->bhkd"), USUAL),
    Pair("features and positions in one letter", spelled("bhqd,bhdk->bhqk", "bhqk,bhkd->bhqd"), USUAL, EIGHT),
    Pair(
        "an Einsum in other letters",
        spelled("abcd,abed->abce", "abce,abed->acbd"),
        spelled("xyzt,xyut->xyzu", "xyzu,xyut->xyzt"),
    ),
]
