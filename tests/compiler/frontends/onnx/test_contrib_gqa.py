"""com.microsoft's GroupQueryAttention beside onnxruntime's: growing and shared caches, ragged batches, rotation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attnc.compiler.frontends.onnx.errors import NoForm
from benchmarks.cases.onnx_traps.graph import Array
from benchmarks.cases.onnx_traps.runs import TOLERANCE
from benchmarks.cases.onnx_traps.single import Single

N, K, H = 6, 2, 16
NAMES = ("q", "k", "v", "past_k", "past_v", "lengths", "total", "cos", "sin", "positions", "added", "sink")
ALL = ("y", "key", "value")


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def grouped(
    new: int = 5,
    past: int | None = None,
    total: int | None = None,
    lengths: tuple[int, ...] | None = None,
    batch: int = 2,
    width: int = 0,
    attributes: dict[str, Any] | None = None,
    fixed: tuple[str, ...] = ("total",),
    outputs: tuple[str, ...] = ALL,
    **given: Any,
) -> Single:
    """``new`` tokens behind a past of that room; ``width`` features are turned."""
    total = (past or 0) + new if total is None else total
    inputs = {
        "q": random(batch, new, N * H),
        "k": random(batch, new, K * H, seed=1),
        "v": random(batch, new, K * H, seed=2),
        "past_k": None if past is None else random(batch, K, past, H, seed=3),
        "past_v": None if past is None else random(batch, K, past, H, seed=4),
        "lengths": np.array(lengths or [total - 1] * batch, np.int32),
        "total": np.array(total, np.int32),
        **({"cos": random(20, width // 2, seed=5), "sin": random(20, width // 2, seed=6)} if width else {}),
        **given,
    }
    heads = {"num_heads": N, "kv_num_heads": K, **({"do_rotary": 1} if width else {}), **(attributes or {})}
    return Single("GroupQueryAttention", {name: inputs.get(name) for name in NAMES}, outputs, heads, fixed)


def places(*rows: tuple[int, ...]) -> Array:
    return np.array(rows, np.int64)


def packed() -> dict[str, Array | None]:
    parts = random(2, 5, N * H), random(2, 5, K * H, seed=1), random(2, 5, K * H, seed=2)
    return {"q": np.concatenate(parts, -1), "k": None, "v": None}


def dead(fill: float) -> Array:
    """A bias of which a whole row, and half of another, is the fill."""
    added = random(1, N, 5, 5)
    added[0, 2, 3], added[0, 1, 4, :3] = fill, fill
    return added


LOWEST = float(np.finfo(np.float32).min)
CASES = {
    "prompt": grouped(),
    "prompt of unlike lengths": grouped(lengths=(2, 4)),
    "prompt, packed": grouped(**packed()),
    "prompt, empty past": grouped(past=0),
    "prompt into a buffer": grouped(past=9, total=5),
    "prompt of unlike lengths into a buffer": grouped(past=9, total=5, lengths=(1, 4)),
    "step": grouped(1, 4),
    "step behind unlike lengths": grouped(1, 4, lengths=(4, 2)),
    "step in a buffer": grouped(1, 9, 5),
    "step in a buffer behind unlike lengths": grouped(1, 9, 7, lengths=(6, 1)),
    "several new tokens": grouped(3, 4, batch=1),
    "several new tokens in a buffer": grouped(3, 12, 7, batch=1),
    "total as an input, no past": grouped(fixed=()),
    "rotated prompt": grouped(width=16),
    "rotated in pairs": grouped(width=16, attributes={"rotary_interleaved": 1}),
    "rotated step": grouped(1, 4, width=16, lengths=(4, 2)),
    "rotated tokens": grouped(3, 4, width=16, batch=1),
    "rotated, a first position": grouped(width=16, positions=places((3, 9, 1, 0, 2), (5, 6, 7, 8, 1))),
    "rotated step by positions": grouped(1, 4, width=16, lengths=(4, 2), positions=places((7,), (3,))),
    "rotated tokens by positions": grouped(3, 4, width=16, batch=1, positions=places((7, 2, 9))),
    **{f"a window of {size}": grouped(attributes={"local_window_size": size}) for size in (1, 2, 5, 6)},
    "a window in a step": grouped(1, 5, lengths=(5, 2), attributes={"local_window_size": 2}),
    "capped": grouped(attributes={"softcap": 2.0}),
    "scale": grouped(attributes={"scale": 0.1}),
    "smooth": grouped(attributes={"smooth_softmax": 1}),
    "sink": grouped(sink=random(N)),
    "sink, cap, window": grouped(sink=random(N), attributes={"softcap": 1.5, "local_window_size": 2}),
    "added": grouped(added=random(2, N, 5, 5)),
    "added and capped": grouped(added=random(1, 1, 5, 5), attributes={"softcap": 1.5}),
    "added in a buffer": grouped(1, 9, 5, lengths=(4, 1), added=random(2, N, 1, 5)),
    "added -inf": grouped(added=dead(-math.inf)),
    "added -inf beside a sink": grouped(added=dead(-math.inf), sink=random(N)),
    "added the lowest number": grouped(added=dead(LOWEST)),
    "added -10000": grouped(added=dead(-10000.0) * np.float32(1)),
    "both ways": grouped(attributes={"causal": 0}, lengths=(2, 4)),
    "both ways, a step": grouped(3, 4, batch=1, attributes={"causal": 0}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_grouped(case: Single) -> None:
    assert case.error() <= TOLERANCE


def test_lengths_matter() -> None:
    """A length that is one too small changes the answer, so the cases above see it."""
    right, wrong = grouped(1, 4, lengths=(4, 4)).ours(), grouped(1, 4, lengths=(3, 3)).ours()
    assert np.abs(right[0] - wrong[0]).max() > 0.05


REFUSED = {
    "a total that is another length": grouped(1, total=5),
    "a present whose length is data": grouped(1, 4, fixed=()),
    "a quantised cache": grouped(attributes={"k_quant_type": "PER_TENSOR"}),
    "a cache that forgets": grouped(attributes={"sliding_window_cache": 1, "local_window_size": 4}),
    "scores": grouped(outputs=(*ALL, "scores"), attributes={"qk_output": 1}),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=list(REFUSED))
def test_refused(case: Single) -> None:
    with pytest.raises(NoForm):
        case.ours()
