"""What a score is: scale, bias, cap, and in which order."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from benchmarks.cases.traps.pairs import SCALE, H, Pair, S, lower, qkv, scores, square


def distance() -> Tensor:
    """k - q [S, S]."""
    return torch.arange(S)[None] - torch.arange(S)[:, None]


def with_table(dtype: torch.dtype) -> tuple[Tensor, ...]:
    """q, k, v and a number for each head and k - q [H, 2 S - 1]."""
    return (*qkv(dtype), torch.randn(H, 2 * S - 1, generator=torch.Generator().manual_seed(4)).to(dtype))


def with_slopes(dtype: torch.dtype) -> tuple[Tensor, ...]:
    """As many positions as heads, and a number for each head."""
    return (*square(dtype), torch.linspace(0.1, 2, H).to(dtype))


def three_dimensions(dtype: torch.dtype) -> tuple[Tensor, ...]:
    """q, k, v [H, S, D] and a bias [H, S, S]."""
    bias = torch.randn(H, S, S, generator=torch.Generator().manual_seed(6)).to(dtype)
    return (*(x[0] for x in qkv(dtype)), bias)


PAIRS = [
    Pair(
        "softcap after the mask",
        lambda q, k, v: (2 * torch.tanh(scores(q, k).masked_fill(~lower(S, S), -math.inf) / 2)).softmax(-1) @ v,
        lambda q, k, v: (2 * torch.tanh(q @ k.mT * SCALE / 2)).masked_fill(~lower(S, S), -math.inf).softmax(-1) @ v,
    ),
    Pair(
        "scale after the mask",
        lambda q, k, v: (
            ((q @ k.mT + torch.zeros(S, S, dtype=q.dtype).masked_fill(~lower(S, S), -8.0)) * SCALE).softmax(-1) @ v
        ),
        lambda q, k, v: (
            (q @ k.mT * SCALE + torch.zeros(S, S, dtype=q.dtype).masked_fill(~lower(S, S), -8.0)).softmax(-1) @ v
        ),
    ),
    Pair(
        "scale inside the cap only",
        lambda q, k, v: (2 * torch.tanh(q @ k.mT / 2) * SCALE).softmax(-1) @ v,
        lambda q, k, v: (2 * torch.tanh(q @ k.mT * SCALE / 2)).softmax(-1) @ v,
    ),
    Pair(
        "scale on both operands",
        lambda q, k, v: ((q * SCALE) @ (k * SCALE).mT).softmax(-1) @ v,
        lambda q, k, v: ((q * SCALE**0.5) @ (k * SCALE**0.5).mT).softmax(-1) @ v,
    ),
    Pair(
        "a large fill scaled down to a bias",
        lambda q, k, v: ((scores(q, k) + torch.where(lower(S, S), 0.0, -1e4).to(q.dtype)) * 1e-4).softmax(-1) @ v,
        lambda q, k, v: ((scores(q, k) + torch.where(lower(S, S), 0.0, -1e4).to(q.dtype)) * 1.0).softmax(-1) @ v,
    ),
    Pair(
        "a temperature for each query",
        lambda q, k, v, t: (scores(q, k) * t[:, None]).softmax(-1) @ v,
        lambda q, k, v, t: (scores(q, k) * t[:, None, None]).softmax(-1) @ v,
        with_slopes,
    ),
    Pair(
        "slopes for each key",
        lambda q, k, v, t: (scores(q, k) + t * torch.arange(H)[:, None].to(q.dtype)).softmax(-1) @ v,
        lambda q, k, v, t: (scores(q, k) + t[:, None, None] * torch.arange(H).to(q.dtype)).softmax(-1) @ v,
        with_slopes,
    ),
    Pair(
        "a table read at q - k",
        lambda q, k, v, t: (scores(q, k) + t[:, S - 1 - distance()]).softmax(-1) @ v,
        lambda q, k, v, t: (scores(q, k) + t[:, S - 1 + distance()]).softmax(-1) @ v,
        with_table,
    ),
    Pair(
        "a factor on the score, not on the bias",
        lambda q, k, v, b: torch.add(b, q @ k.mT * SCALE, alpha=3).softmax(-1) @ v,
        lambda q, k, v, b: torch.add(q @ k.mT * SCALE, b, alpha=3).softmax(-1) @ v,
        three_dimensions,
    ),
    Pair(
        "factors of baddbmm exchanged",
        lambda q, k, v, b: torch.baddbmm(b, q, k.mT, beta=SCALE, alpha=0.7).softmax(-1) @ v,
        lambda q, k, v, b: torch.baddbmm(b, q, k.mT, beta=0.7, alpha=SCALE).softmax(-1) @ v,
        three_dimensions,
    ),
    Pair(
        "the scores subtracted",
        lambda q, k, v: torch.rsub(scores(q, k), 1.5).softmax(-1) @ v,
        lambda q, k, v: torch.sub(scores(q, k), 1.5).softmax(-1) @ v,
    ),
    Pair(
        "a bound above",
        lambda q, k, v: scores(q, k).clamp(max=-0.2).softmax(-1) @ v,
        lambda q, k, v: scores(q, k).clamp(min=-0.2).softmax(-1) @ v,
    ),
    Pair(
        "scores cut to integers",
        lambda q, k, v: (scores(q, k) * 2).to(torch.int32).to(q.dtype).softmax(-1) @ v,
        lambda q, k, v: (scores(q, k) * 2).to(torch.float32).to(q.dtype).softmax(-1) @ v,
    ),
    Pair(
        "scores added to their transpose",
        lambda q, k, v: (lambda s: (s + s.mT).softmax(-1) @ v)(scores(q, k)),
        lambda q, k, v: (lambda s: (s + s).softmax(-1) @ v)(scores(q, k)),
        code="ATTNC-CONTRACTION",
    ),
]
