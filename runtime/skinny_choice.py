"""Whether a linear layer is faster by ``attnc::skinny_linear`` than by torch's own linear: timed here, not guessed."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from attnc.runtime import skinny

WEIGHTS = 64 << 20
"""Bytes of weights that are timed: of a larger matrix, as many output features as that holds."""
CACHE = 64 << 20
"""Bytes read before each run, so that weights come from memory, as they do in a model that fits no cache."""
ROUNDS = 5
MIX = ((8, 32), (256, 1))
"""Rows of a step, and how many such steps: eight requests of which as many tokens are read as are written."""

_forced: bool | None = None


def chosen(weight: Tensor) -> bool:
    """Whether the op beats torch's linear, in this process, for MIX of rows times a weight like this [N, K].

    The first question about a shape, a dtype and a number of threads times both (about 0.2 s); the answer then holds.
    Always False for other dtypes and devices, and where the op has no kernel.
    """
    if _forced is not None:
        return _forced
    if weight.device.type != "cpu" or weight.dtype not in skinny.DTYPES or not skinny.available():
        return False
    features, depth = weight.shape
    return _faster(features, depth, weight.dtype, torch.get_num_threads())


@contextlib.contextmanager
def forced(answer: bool) -> Iterator[None]:
    """Make :func:`chosen` give ``answer`` for any weight, in all threads."""
    global _forced
    before, _forced = _forced, answer
    try:
        yield
    finally:
        _forced = before


@functools.cache
def _faster(features: int, depth: int, dtype: torch.dtype, threads: int) -> bool:
    features = max(1, min(features, WEIGHTS // max(1, depth * dtype.itemsize)))
    weight = torch.ones(features, depth, dtype=dtype)
    packed = skinny.pack(weight)
    times = [_step_seconds(weight, packed, rows) for rows, _ in MIX]
    ours, library = (sum(n * t[i] for (_, n), t in zip(MIX, times, strict=True)) for i in (0, 1))
    return ours < library


def _step_seconds(weight: Tensor, packed: skinny.Packed, rows: int) -> list[float]:
    """Of ours and of the library."""
    x = torch.ones(rows, weight.shape[1], dtype=weight.dtype)
    return seconds(lambda: skinny.linear(x, packed), lambda: functional.linear(x, weight))


def seconds(*contenders: Callable[[], object]) -> list[float]:
    """The least seconds that each takes when nothing it needs is cached; they take turns."""
    cache = torch.ones(CACHE // 4)
    best = [float("inf")] * len(contenders)
    with torch.no_grad():
        for _ in range(ROUNDS):
            for i, run in enumerate(contenders):
                cache.sum()
                start = time.perf_counter()
                run()
                best[i] = min(best[i], time.perf_counter() - start)
    return best
