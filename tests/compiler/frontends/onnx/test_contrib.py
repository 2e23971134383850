"""com.microsoft's rotation, normalisations, elementwise operators and products beside onnxruntime's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.ops import operators
from benchmarks.cases.onnx_traps.graph import MICROSOFT, Array
from benchmarks.cases.onnx_traps.runs import TOLERANCE
from benchmarks.cases.onnx_traps.single import Single

POSITIONS = np.array([[0, 3, 2, 9, 1], [7, 7, 1, 2, 3]], np.int64)


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def integers(low: int, high: int, shape: tuple[int, ...], dtype: Any = np.int32) -> Array:
    return np.random.default_rng([high, *shape]).integers(low, high, shape).astype(dtype)


def rotary(x: Array, places: Array, width: int = 8, **attributes: Any) -> Single:
    tables = {"cos": random(20, width // 2), "sin": random(20, width // 2, seed=1)}
    return Single("RotaryEmbedding", {"x": x, "places": places, **tables}, attributes=attributes)


FIRST = np.array([3], np.int64)
PARTIAL = {"num_heads": 3, "rotary_embedding_dim": 4}
ROTARY = {
    "from a first position": rotary(random(2, 5, 24), FIRST),
    "by positions": rotary(random(2, 5, 24), POSITIONS),
    "in pairs": rotary(random(2, 5, 24), POSITIONS, interleaved=1),
    "by head": rotary(random(2, 3, 5, 8), FIRST),
    "by head, by positions, in pairs": rotary(random(2, 3, 5, 8), POSITIONS, interleaved=1),
    "a part": rotary(random(2, 5, 24), POSITIONS, 4, **PARTIAL),
    "a part, by head, in pairs": rotary(random(2, 3, 5, 8), FIRST, 4, interleaved=1, **PARTIAL),
    "ragged": rotary(random(2, 3, 5, 8), FIRST, is_packed_batching=1),
}

X, SKIP, GAMMA, BETA, BIAS = (
    random(2, 5, 16),
    random(2, 5, 16, seed=1),
    random(16),
    random(16, seed=1),
    random(16, seed=2),
)
SUM = ("y", "", "", "sum")


def skipping(*, rms: bool = False, half: bool = False, **given: Array | None) -> Single:
    inputs = {"x": X, "skip": SKIP, "gamma": GAMMA, "beta": BETA, "bias": BIAS, **given}
    if rms:
        inputs.pop("beta")
    if half:
        inputs = {name: None if value is None else value.astype(np.float16) for name, value in inputs.items()}
    op = "SkipSimplifiedLayerNormalization" if rms else "SkipLayerNormalization"
    return Single(op, inputs, SUM, {"epsilon": 1e-3})


def embedding(outputs: tuple[str, ...] = ("y", "counts", "sum"), **given: Array | None) -> Single:
    inputs = {
        "ids": integers(0, 11, (2, 5)),
        "segments": integers(0, 2, (2, 5)),
        "words": random(11, 16),
        "positions": random(9, 16),
        "kinds": random(2, 16),
        "gamma": GAMMA,
        "beta": BETA,
        "mask": np.array([[1, 1, 1, 0, 0], [1, 2, 0, 1, -1]], np.int32),
        "places": None,
    }
    return Single("EmbedLayerNormalization", {**inputs, **given}, outputs)


NORMS = {
    "layer norm of a sum": skipping(),
    "without bias": skipping(bias=None),
    "without beta": skipping(beta=None),
    "a sum with one skip for all": skipping(skip=random(5, 16)),
    "in half": skipping(half=True),
    "rms of a sum": skipping(rms=True),
    "rms of a sum in half": skipping(rms=True, half=True),
    "rms": Single("SimplifiedLayerNormalization", {"x": X, "g": GAMMA}, ("y", "inverse"), {"epsilon": 0.01}, domain=""),
    "rms of two dimensions": Single(
        "SimplifiedLayerNormalization", {"x": X, "g": random(5, 16)}, attributes={"axis": 1}, domain=""
    ),
    "embeddings": embedding(),
    "embeddings without a mask": embedding(mask=None),
    "embeddings without segments": embedding(segments=None, kinds=None),
    "embeddings by positions": embedding(places=integers(0, 9, (1, 5))),
}


def pointwise(op: str, *values: Array, fixed: tuple[int, ...] = (), **attributes: Any) -> Single:
    names = "abcd"[: len(values)]
    return Single(op, dict(zip(names, values, strict=True)), ("y",), attributes, [names[place] for place in fixed])


WIDE = random(3, 7) * 3
POINTWISE = {
    "Gelu": pointwise("Gelu", WIDE),
    "QuickGelu": pointwise("QuickGelu", WIDE),
    "QuickGelu as SiLU": pointwise("QuickGelu", WIDE, alpha=1.0),
    "FastGelu": pointwise("FastGelu", WIDE),
    "FastGelu and bias": pointwise("FastGelu", WIDE, random(7)),
    "BiasGelu": pointwise("BiasGelu", WIDE, random(7)),
    **{f"ExpandDims {axis}": pointwise("ExpandDims", WIDE, np.array([axis], np.int32), fixed=(1,)) for axis in (1, -2)},
    "Inverse": pointwise("Inverse", random(2, 4, 4)),
    "Trilu": pointwise("Trilu", random(2, 4, 5), np.array([1], np.int64), fixed=(1,), upper=0),
    "GatherND": pointwise("GatherND", random(3, 4, 5), np.array([[[0, -1], [2, 3]]], np.int64)),
    "Pad": pointwise("Pad", random(3, 4), np.array([1, 0, 2, 1], np.int64), np.array([2.5], np.float32), fixed=(1, 2)),
    "Pad by the edge": pointwise("Pad", random(3, 4), np.array([1, 0, 2, 1], np.int64), fixed=(1,), mode="edge"),
    **{f"CDist {m}": pointwise("CDist", random(5, 4), random(3, 4), metric=m) for m in ("euclidean", "sqeuclidean")},
}


def product(a: Array, b: Array, **attributes: Any) -> Single:
    return pointwise("FusedMatMul", a, b, **attributes)


def gemm(activation: str, **parameters: float) -> Single:
    given = {f"activation_{name}": value for name, value in parameters.items()}
    return pointwise(
        "FusedGemm",
        random(4, 3),
        random(5, 4),
        random(3, 1),
        activation=activation,
        transA=1,
        transB=1,
        alpha=0.5,
        **given,
    )


def of_bits(bits: int, width: int, block: int, zeros: str = "", **given: Any) -> Single:
    blocks = math.ceil(width / block)
    packed = integers(0, 256, (6, blocks, block * bits // 8), np.uint8)
    points = {
        "": None,
        "packed": integers(0, 256, (6, math.ceil(blocks * bits / 8)), np.uint8),
        "numbers": random(6, blocks) + 5,
    }[zeros]
    scales = random(6, blocks) / 50
    inputs = {"a": random(2, 3, width), "b": packed, "s": scales, "z": points, "g": None, "c": random(6), **given}
    return Single("MatMulNBits", inputs, ("y",), {"K": width, "N": 6, "bits": bits, "block_size": block})


A8, B8 = integers(0, 127, (2, 3, 16), np.uint8), integers(-60, 60, (16, 5), np.int8)
SCALES = {"sa": np.array(0.03, np.float32), "sb": np.abs(random(5))}
PRODUCTS = {
    "scaled": product(random(2, 3, 4), random(2, 4, 5), alpha=0.3),
    "both transposed": product(random(4, 3), random(5, 4), transA=1, transB=1),
    "batches of A": product(random(3, 2, 4), random(2, 4, 5), transBatchA=1),
    "batches of B, transposed": product(random(2, 6, 3, 4), random(5, 2, 6, 4), transBatchB=1, transB=1),
    "batches of A, transposed": product(random(4, 2, 6, 3), random(2, 6, 4, 5), transBatchA=1, transA=1),
    "a vector": product(random(4), random(2, 4, 5), transA=1),
    "TransposeMatMul": pointwise("TransposeMatMul", random(2, 4, 3), random(2, 5, 4), transA=1, transB=1, alpha=0.5),
    "Gemm, Relu": gemm("Relu"),
    "Gemm, Tanh": gemm("Tanh"),
    "Gemm, LeakyRelu": gemm("LeakyRelu", alpha=0.3),
    "Gemm, HardSigmoid": gemm("HardSigmoid", alpha=0.3, beta=0.4),
    **{
        f"{bits} bits, K {width}, {zeros or 'no'} zeros": of_bits(bits, width, block, zeros)
        for bits in (2, 4, 8)
        for width, block in ((64, 32), (48, 32))
        for zeros in ("", "packed", "numbers")
        if (bits, zeros) != (8, "numbers")
    },
    "integers": Single("MatMulIntegerToFloat", {"a": A8, "b": B8, **SCALES}),
    "integers with zeros and bias": Single(
        "MatMulIntegerToFloat",
        {"a": A8, "b": B8, **SCALES, "za": np.array(9, np.uint8), "zb": integers(-5, 5, (5,), np.int8), "c": random(5)},
    ),
    "quantised now": Single("DynamicQuantizeMatMul", {"a": random(2, 3, 16), "b": B8, "sb": SCALES["sb"]}),
    "quantised now, with zeros and bias": Single(
        "DynamicQuantizeMatMul",
        {"a": random(2, 3, 16), "b": B8, "sb": SCALES["sb"], "zb": integers(-5, 5, (5,), np.int8), "c": random(5)},
    ),
}
CASES = {**ROTARY, **NORMS, **POINTWISE, **PRODUCTS}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_operator(case: Single) -> None:
    assert case.error() <= TOLERANCE


REFUSED = {
    "a scale of positions": rotary(random(2, 5, 24), FIRST, scale=2.0),
    "wide tables for a part": rotary(random(2, 3, 5, 8), FIRST, 8, **PARTIAL),
    "mean and deviation": Single("SkipLayerNormalization", {"x": X, "s": SKIP, "g": GAMMA}, ("y", "m", "d", "sum")),
    "groups of weights": of_bits(4, 64, 32, g=np.zeros(64, np.int32)),
    "an unknown activation": gemm("Softsign"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=list(REFUSED))
def test_refused(case: Single) -> None:
    with pytest.raises(NoForm):
        case.ours()


def test_by_the_text() -> None:
    """Operators without a CPU kernel, as the documentation writes them."""
    x, bias, skip = random(2, 3, 8), random(8), random(2, 3, 8, seed=1)
    (added,) = pointwise("BiasAdd", x, bias, skip).ours()
    (kept,) = pointwise("BiasDropout", x, bias, skip).ours()
    assert np.array_equal(added, x + bias + skip) and np.array_equal(kept, added)
    (made,) = pointwise("BiasSplitGelu", x, bias).ours()
    left, right = np.split(x + bias, 2, -1)
    erf = np.vectorize(math.erf)(right / math.sqrt(2))
    assert np.abs(made - left * right * (1 + erf) / 2).max() < 1e-6
    (normed,) = pointwise("GroupNorm", x[:, :, None], random(8), random(8), groups=2, activation=1).ours()
    grouped = x.reshape(2, 3, 2, 4)
    scaled = (grouped - grouped.mean((1, 3), keepdims=True)) / np.sqrt(grouped.var((1, 3), keepdims=True) + 1e-5)
    plain = scaled.reshape(2, 3, 8) * random(8) + random(8)
    assert np.abs(normed[:, :, 0] - plain / (1 + np.exp(-plain))).max() < 1e-5


def test_what_writers_write() -> None:
    """The operators that optimizers and builders put into models have a form."""
    names = {name for domain, name in operators() if domain == MICROSOFT}
    assert names >= {"Attention", "MultiHeadAttention", "GroupQueryAttention", "RotaryEmbedding", "MatMulNBits"}
    assert names >= {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization", "Gelu"}
    assert names >= {"FastGelu", "BiasGelu", "QuickGelu", "FusedMatMul", "FusedGemm", "FusedConv"}


@pytest.mark.skipif(("", "Conv") not in operators(), reason="Conv has no form here")
def test_convolution() -> None:
    """A convolution, what is added to it, and a function of both."""
    inputs = {"x": random(1, 4, 8, 8), "w": random(4, 4, 3, 3), "b": random(4), "z": random(1, 4, 8, 8, seed=1)}
    attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "activation": "Relu"}
    assert Single("FusedConv", inputs, ("y",), attributes).error() <= TOLERANCE
