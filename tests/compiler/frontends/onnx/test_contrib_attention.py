"""com.microsoft's Attention, MultiHeadAttention and DecoderMaskedMultiHeadAttention beside onnxruntime's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attnc.compiler.frontends.onnx.errors import NoForm
from benchmarks.cases.onnx_traps.graph import Array
from benchmarks.cases.onnx_traps.runs import TOLERANCE
from benchmarks.cases.onnx_traps.single import Single

B, S, N, H, P = 2, 5, 3, 8, 4
D = N * H
LOWEST = float(np.finfo(np.float32).min)
PRESENT = ("y", "key", "value")


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def bits(*shape: int) -> Array:
    """Zeros and ones; the second batch entry sees nothing."""
    drawn = (np.random.default_rng(shape).random(shape) < 0.6).astype(np.int32)
    drawn[1] = 0
    return drawn


def numbers(*values: int) -> Array:
    return np.array(values, np.int32)


def multi_head(outputs: tuple[str, ...] = ("y",), attributes: dict[str, Any] | None = None, **given: Any) -> Single:
    names = ("q", "k", "v", "bias", "mask", "added", "past_k", "past_v", "past_length", "beams")
    inputs = {"q": random(B, S, D), "k": random(B, S, D, seed=1), "v": random(B, S, D, seed=2), **given}
    ordered = {name: inputs.get(name) for name in names}
    return Single("MultiHeadAttention", ordered, outputs, {"num_heads": N, **(attributes or {})})


PAST = {"past_k": random(B, N, P, H, seed=3), "past_v": random(B, N, P, H, seed=4)}
BY_HEAD = {"k": random(B, N, 7, H), "v": random(B, N, 7, H, seed=1)}
ONE_WAY = {"unidirectional": 1}
DEAD = random(B, N, S, S)
DEAD[0, 1, 2] = -math.inf

MULTI_HEAD = {
    "plain": multi_head(),
    "bias": multi_head(bias=random(3 * D)),
    "scale": multi_head(attributes={"scale": 0.3}),
    "one way": multi_head(attributes=ONE_WAY),
    "cross": multi_head(k=random(B, 7, D), v=random(B, 7, D, seed=1)),
    "other width of values": multi_head(v=random(B, S, N * 5), bias=random(2 * D + N * 5)),
    "keys by head": multi_head(**BY_HEAD),
    "past": multi_head(PRESENT, **PAST),
    "past, one way": multi_head(PRESENT, ONE_WAY, **PAST),
    "past, one query": multi_head(
        PRESENT, ONE_WAY, q=random(B, 1, D), k=random(B, 1, D, seed=1), v=random(B, 1, D, seed=2), **PAST
    ),
    "mask": multi_head(mask=bits(B, S)),
    "mask of other numbers": multi_head(mask=numbers(2, 1, -1, 1, 0, 0, 3, 0, 1, 1).reshape(B, S)),
    "mask, one way": multi_head(attributes=ONE_WAY, mask=bits(B, S)),
    "mask, one way, the lowest fill": multi_head(
        attributes={**ONE_WAY, "mask_filter_value": LOWEST}, mask=1 - np.eye(B, S, dtype=np.int32)
    ),
    "mask, a small fill": multi_head(attributes={"mask_filter_value": -5.0}, mask=bits(B, S)),
    "mask, no finite fill": multi_head(attributes={"mask_filter_value": -math.inf}, mask=bits(B, S)),
    "mask over past and new": multi_head(PRESENT, mask=bits(B, S + P), **PAST),
    "lengths": multi_head(mask=numbers(3, 0)),
    "lengths and more": multi_head(mask=numbers(3, 5, 1, 2, 3, 4, 5, 6)),
    "lengths, past, one way": multi_head(PRESENT, ONE_WAY, mask=numbers(7, 2), **PAST),
    "a mask for each query": multi_head(mask=bits(B, S, S)),
    "a mask for each query, past, one way": multi_head(PRESENT, ONE_WAY, mask=bits(B, S, S + P), **PAST),
    **{f"added {shape}": multi_head(added=random(*shape)) for shape in ((B, N, S, S), (1, N, S, S), (B, 1, S, S))},
    "added -inf in a whole row": multi_head(added=DEAD),
    "all at once": multi_head(
        PRESENT,
        {**ONE_WAY, "mask_filter_value": -40.0},
        added=random(1, N, S, S + P),
        mask=bits(B, S + P),
        bias=random(3 * D),
        **PAST,
    ),
    "scores shown": multi_head(("y", "", "", "scores"), added=random(1, 1, S, S)),
}


@pytest.mark.parametrize("case", MULTI_HEAD.values(), ids=list(MULTI_HEAD))
def test_multi_head(case: Single) -> None:
    assert case.error() <= TOLERANCE


def attention(outputs: tuple[str, ...] = ("y",), attributes: dict[str, Any] | None = None, **given: Any) -> Single:
    names = ("x", "weights", "bias", "mask", "past", "added", "past_length")
    inputs = {"x": random(B, S, 10), "weights": random(10, 3 * D) / 3, "bias": random(3 * D), **given}
    ordered = {name: inputs.get(name) for name in names}
    return Single("Attention", ordered, outputs, {"num_heads": N, **(attributes or {})})


BOTH = ("y", "present")
BEFORE = random(2, B, N, P, H)
NARROW = {"weights": random(10, 2 * D + N * 5) / 3, "bias": random(2 * D + N * 5)}
UNLIKE = {"qkv_hidden_sizes": [D, D, N * 5]}

ATTENTION = {
    "plain": attention(BOTH),
    "without a bias": attention(bias=None),
    "one way": attention(BOTH, ONE_WAY),
    "past, one way": attention(BOTH, ONE_WAY, past=BEFORE),
    "lengths": attention(mask=numbers(3, 0)),
    "ends and starts": attention(mask=numbers(3, 5, 1, 2)),
    "nothing between start and end": attention(mask=numbers(3, 5, 4, 2)),
    "lengths, past, one way": attention(BOTH, ONE_WAY, mask=numbers(7, 2, 1, 0), past=BEFORE),
    "mask": attention(mask=bits(B, S)),
    "a mask of one column says nothing": attention(mask=numbers(0, 1).reshape(B, 1)),
    "mask, past, one way": attention(BOTH, ONE_WAY, mask=bits(B, S + P), past=BEFORE),
    "a mask for each query": attention(attributes=ONE_WAY, mask=bits(B, S, S)),
    "added": attention(added=random(B, N, S, S)),
    "fill and scale": attention(attributes={"scale": 0.5, "mask_filter_value": -3.0}, mask=bits(B, S)),
    "other width of values": attention(attributes=UNLIKE, **NARROW),
}


@pytest.mark.parametrize("case", ATTENTION.values(), ids=list(ATTENTION))
def test_attention(case: Single) -> None:
    assert case.error() <= TOLERANCE


def decoder(outputs: tuple[str, ...] = PRESENT, attributes: dict[str, Any] | None = None, **given: Any) -> Single:
    names = ("q", "k", "v", "mask", "added", "past_k", "past_v", "past_length", "beam", "beams", "bias")
    inputs = {"q": random(B, 1, D), "k": random(B, 1, D, seed=1), "v": random(B, 1, D, seed=2), **given}
    ordered = {name: inputs.get(name) for name in names}
    return Single("DecoderMaskedMultiHeadAttention", ordered, outputs, {"num_heads": N, **(attributes or {})})


def buffer(length: int = 4, **given: Any) -> Single:
    room = {"past_k": random(B, N, 9, H, seed=3), "past_v": random(B, N, 9, H, seed=4), "past_length": numbers(length)}
    return decoder(attributes={"past_present_share_buffer": 1}, **room, **given)


DECODER = {
    "cross": decoder(("y",), **BY_HEAD),
    "cross, mask": decoder(("y",), mask=bits(B, 7), **BY_HEAD),
    "cross, scores": decoder(("y", "", "", "scores"), {"output_qk": 1}, **BY_HEAD),
    "buffer": buffer(),
    "buffer, empty": buffer(0),
    "buffer, full": buffer(8),
    "buffer, mask": buffer(mask=bits(B, 5)),
    "buffer, added": buffer(added=random(1, N, 1, 5)),
    "buffer, bias": buffer(bias=random(3 * D)),
}


@pytest.mark.parametrize("case", DECODER.values(), ids=list(DECODER))
def test_decoder(case: Single) -> None:
    assert case.error() <= TOLERANCE


def test_packed() -> None:
    """Queries, keys and values in one tensor, or keys and values, which onnxruntime's CPU kernel doesn't take."""
    apart = random(B, S, D), random(B, S, D, seed=1), random(B, S, D, seed=2)
    q, k, v = (x.reshape(B, S, N, H) for x in apart)
    (expected,) = multi_head().ours()
    (packed,) = multi_head(q=np.stack((q, k, v), 3), k=None, v=None).ours()
    (half,) = multi_head(q=apart[0], k=np.stack((k, v), 3), v=None).ours()
    (swapped,) = multi_head(q=apart[0], k=np.stack((v, k), 3), v=None).ours()
    assert np.array_equal(packed, expected) and np.array_equal(half, expected)
    assert np.abs(swapped - expected).max() > 0.1


REFUSED = {
    "one way over another sequence": multi_head(attributes=ONE_WAY, k=random(B, 7, D), v=random(B, 7, D)),
    "a mask over the new keys only": multi_head(PRESENT, mask=bits(B, S), **PAST),
    "a buffer": multi_head(PRESENT, past_length=numbers(2), **PAST),
    "a bias for keys by head": multi_head(bias=random(3 * D), **BY_HEAD),
    "rotation": attention(attributes={"do_rotary": 1}),
    "a mask of four dimensions": attention(mask=np.ones((B, 1, 9, 9), np.int32)),
    "unlike widths in one present": attention(BOTH, UNLIKE, **NARROW),
    "beams": buffer(beams=np.zeros((B, 1, 9), np.int32)),
    "a past that grows": decoder(past_k=random(B, N, P, H), past_v=random(B, N, P, H)),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=list(REFUSED))
def test_refused(case: Single) -> None:
    with pytest.raises(NoForm):
        case.ours()
