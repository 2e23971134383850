"""Which head, position or feature an operand's element belongs to."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.cases.traps.pairs import SCALE, B, D, H, Pair, Program, S, attend, grouped, qkv, scores, square


def cached(write: bool) -> Program:
    """Attention over a buffer that is written first; the trap reads it before the write."""

    def run(q: Tensor, k: Tensor, v: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        before = cache.clone()
        cache[:, :, 2:4] = k[:, :, 2:4]
        return attend(q, cache if write else before, v), cache * 1.0

    return run


def with_cache(dtype: torch.dtype) -> tuple[Tensor, ...]:
    return (*qkv(dtype), torch.randn(B, H, S, D, generator=torch.Generator().manual_seed(9)).to(dtype))


def folded(dtype: torch.dtype) -> tuple[Tensor, ...]:
    """q, k and v with the heads in the last dimension [B, S, H * D]."""
    return tuple(x.transpose(1, 2).reshape(B, S, H * D) for x in qkv(dtype))


def heads(x: Tensor) -> Tensor:
    return x.view(B, S, H, D).transpose(1, 2)


def interleaved(x: Tensor) -> Tensor:
    """Heads from features that lie beside each other."""
    return x.view(B, S, D, H).permute(0, 3, 1, 2)


def as_long_as_wide(dtype: torch.dtype) -> tuple[Tensor, ...]:
    return qkv(dtype, D, D)


PAIRS = [
    Pair(
        "permuted K",
        lambda q, k, v: (q @ k.permute(0, 2, 3, 1) * SCALE).softmax(-1) @ v,
        lambda q, k, v: (q @ k.permute(0, 1, 3, 2) * SCALE).softmax(-1) @ v,
        square,
    ),
    Pair(
        "permuted V",
        lambda q, k, v: attend(q, k, v.transpose(1, 2)),
        lambda q, k, v: attend(q, k, v),
        square,
    ),
    Pair(
        "K not transposed",
        lambda q, k, v: (q @ k * SCALE).softmax(-1) @ v,
        lambda q, k, v: (q @ k.mT * SCALE).softmax(-1) @ v,
        as_long_as_wide,
    ),
    Pair("the cache as it was before the write", cached(False), cached(True), with_cache),
    Pair(
        "heads repeated in tile order",
        lambda q, k, v: attend(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)),
        lambda q, k, v: attend(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)),
        grouped,
    ),
    Pair(
        "heads expanded before their own axis",
        lambda q, k, v: attend(q, *(x[:, None].expand(B, 2, 2, S, D).reshape(B, H, S, D) for x in (k, v))),
        lambda q, k, v: attend(q, *(x[:, :, None].expand(B, 2, 2, S, D).reshape(B, H, S, D) for x in (k, v))),
        grouped,
    ),
    Pair(
        "V repeated in another order than K",
        lambda q, k, v: attend(q, k.repeat_interleave(2, 1), v.repeat(1, 2, 1, 1)),
        lambda q, k, v: attend(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)),
        grouped,
    ),
    Pair(
        "heads of interleaved features",
        lambda q, k, v: attend(interleaved(q), interleaved(k), interleaved(v)),
        lambda q, k, v: attend(heads(q), heads(k), heads(v)),
        folded,
    ),
    Pair(
        "heads merged feature by feature",
        lambda q, k, v: attend(q, k, v).permute(0, 2, 3, 1).reshape(B, S, H * D),
        lambda q, k, v: attend(q, k, v).permute(0, 2, 1, 3).reshape(B, S, H * D),
    ),
    Pair(
        "one softmax over every query and key of a head",
        lambda q, k, v: scores(q, k).flatten(-2).softmax(-1).view(B, H, S, S) @ v,
        lambda q, k, v: scores(q, k).flatten(0, 1).softmax(-1).view(B, H, S, S) @ v,
        code="ATTNC-LAYOUT",
    ),
    Pair(
        "a square score matrix transposed",
        lambda q, k, v: (q @ k.mT * SCALE).mT.softmax(-1) @ v,
        lambda q, k, v: (k @ q.mT * SCALE).mT.softmax(-1) @ v,
        square,
    ),
]
