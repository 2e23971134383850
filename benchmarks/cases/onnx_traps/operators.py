"""Attention as one operator: attributes and inputs that change its meaning."""

from __future__ import annotations

from typing import Any

import numpy

from benchmarks.cases.onnx_traps.graph import MICROSOFT, Graph, Port
from benchmarks.cases.onnx_traps.pairs import QKV, Build, D, H, Pair, scores

WIDTH = 2 * D
PACKED = tuple(Port(name, ("b", "s", H * D)) for name in "qkv")
MASK = Port("mask", ("b", "s"), "int32")
GROUPED = (Port("q", ("b", "s", H * WIDTH)), *(Port(name, ("b", "s", 2 * WIDTH)) for name in "kv"))


def heads(mask: str | None = None, **attributes: Any) -> Build:
    """com.microsoft's MultiHeadAttention."""
    given = {"num_heads": H, **attributes}
    return lambda g: g("MultiHeadAttention", "q", "k", "v", None, mask, domain=MICROSOFT, **given)


def grouped(less: int, **attributes: Any) -> Build:
    """com.microsoft's GroupQueryAttention over right-padded tokens, as exporters count them."""

    def build(g: Graph) -> str:
        counts = g("Cast", g("Sub", g("ReduceSum", "mask", [1], keepdims=0), numpy.array(less, numpy.int32)), to=6)
        total = g("Cast", g("Squeeze", g.length("q", 1), [0]), to=6)
        given = {"num_heads": H, "kv_num_heads": 2, **attributes}
        inputs = ("q", "k", "v", None, None, counts, total)
        return g.several(3, "GroupQueryAttention", *inputs, domain=MICROSOFT, **given)[0]

    return build


def by_length(start: bool) -> Build:
    """com.microsoft's Attention with a length for each batch entry, or an end and a start."""

    def build(g: Graph) -> str:
        generator = numpy.random.default_rng(3)
        weights = generator.standard_normal((H * D, 3 * H * D)).astype(numpy.float32) / 6
        counts = g("ReduceSum", "mask", [1], keepdims=0)
        ends = g("Add", counts, numpy.array(1, numpy.int32))
        index = g("Concat", ends, g("Sub", counts, counts) if not start else g("Div", counts, counts), axis=0)
        bias = numpy.zeros(3 * H * D, numpy.float32)
        return g("Attention", "q", weights, bias, index, domain=MICROSOFT, num_heads=H)

    return build


def turned(q: int, k: int) -> Build:
    """Queries and keys turned in halves (0) or neighbouring pairs (1)."""

    def build(g: Graph) -> str:
        angle = numpy.arange(64)[:, None] / 100.0 ** (numpy.arange(D // 2) / (D // 2))
        tables = (numpy.cos(angle).astype(numpy.float32), numpy.sin(angle).astype(numpy.float32))
        given = [("q", q), ("k", k)]
        a, b = (g("RotaryEmbedding", name, [0], *tables, domain=MICROSOFT, interleaved=how) for name, how in given)
        return g("MatMul", g("Softmax", scores(g, a, b), axis=-1), "v")

    return build


def dropped(training: bool) -> Build:
    def build(g: Graph) -> str:
        weights = g("Dropout", g("Softmax", scores(g), axis=-1), 0.5, training)
        return g("MatMul", weights, "v")

    return build


def onnx_attention(**attributes: Any) -> Build:
    """ai.onnx's Attention."""
    return lambda g: g("Attention", "q", "k", "v", **attributes)


UNLIKE = (Port("q", ("b", H, "p", D)), *QKV[1:])
RIGHT = Port("mask", ("b", "s"), "int32")

PAIRS = [
    Pair("a mask that is a bias", heads("mask", mask_filter_value=-2.0), heads("mask"), (*PACKED, MASK)),
    Pair("a scale of its own", heads(scale=1.0), heads(), PACKED),
    Pair("one direction", heads(unidirectional=1), heads(), PACKED),
    Pair("other heads in one width", heads(num_heads=2), heads(num_heads=4), PACKED),
    Pair("one key less than there are", grouped(2), grouped(1), (*GROUPED, RIGHT)),
    Pair("a window", grouped(1, local_window_size=2), grouped(1), (*GROUPED, RIGHT)),
    Pair("a sum with one number more", grouped(1, smooth_softmax=1), grouped(1), (*GROUPED, RIGHT)),
    Pair("capped", grouped(1, softcap=0.5), grouped(1), (*GROUPED, RIGHT)),
    Pair("keys from a start on", by_length(start=True), by_length(start=False), (PACKED[0], MASK)),
    Pair("queries in pairs and keys in halves", turned(1, 0), turned(1, 1)),
    Pair("dropout in training", dropped(training=True), dropped(training=False), random=True),
    Pair("causal from the top left", onnx_attention(is_causal=1), onnx_attention(), UNLIKE, 23),
    Pair("capped in ai.onnx", onnx_attention(softcap=0.5), onnx_attention(), QKV, 23),
]
