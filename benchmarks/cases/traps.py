"""Pairs of programs that differ in one op.

The trap must not be given its twin's meaning: it is fused by its own, or left to the host with a code. The twin must
fuse. So neither fusing by look nor refusing everything passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

B, H, S, D = 2, 4, 12, 16
SCALE = D**-0.5

Program = Callable[..., Any]


@dataclass(frozen=True)
class Pair:
    """``trap`` and ``twin`` take the same inputs. ``trap_fuses`` is None where both are fine as long as it is right."""

    name: str
    inputs: Callable[[torch.dtype], tuple[Tensor, ...]]
    trap: Program
    twin: Program
    code: str = ""
    """The code the trap is left with; empty where it fuses by its own meaning."""
    random: bool = False
    """The trap draws random numbers: it is only compared under one seed."""


def qkv(dtype: torch.dtype, sq: int = S, sk: int = S, heads: int = H, kv_heads: int = H) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((B, heads, sq, D), (B, kv_heads, sk, D), (B, kv_heads, sk, D))
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    raw = q @ k.transpose(-2, -1) * SCALE
    return (raw if mask is None else raw + mask).softmax(-1) @ v


def lower(rows: int, columns: int, offset: int = 0) -> Tensor:
    return torch.ones(rows, columns, dtype=torch.bool).tril(offset)


PAIRS: list[Pair] = []


def pair(
    name: str,
    trap: Program,
    twin: Program,
    inputs: Callable[[torch.dtype], tuple[Tensor, ...]] = qkv,
    code: str = "",
    random: bool = False,
) -> None:
    PAIRS.append(Pair(name, inputs, trap, twin, code, random))


# K arrives as [B, S, H, D] with S == H: only following the permutation tells heads from positions.
def square(dtype: torch.dtype) -> tuple[Tensor, ...]:
    return qkv(dtype, H, H)


pair(
    "permuted K",
    lambda q, k, v: (q @ k.permute(0, 2, 3, 1) * SCALE).softmax(-1) @ v,
    lambda q, k, v: (q @ k.permute(0, 1, 3, 2) * SCALE).softmax(-1) @ v,
    square,
)
pair(
    "permuted V",
    lambda q, k, v: attend(q, k, v.transpose(1, 2)),
    lambda q, k, v: attend(q, k, v),
    square,
)
pair(
    "causal from the bottom right",
    lambda q, k, v: attend(q, k, v, torch.zeros(5, S).masked_fill(~lower(5, S, S - 5), -math.inf).to(q.dtype)),
    lambda q, k, v: attend(q, k, v, torch.zeros(5, S).masked_fill(~lower(5, S), -math.inf).to(q.dtype)),
    lambda dtype: qkv(dtype, 5),
)


def padded(dtype: torch.dtype) -> tuple[Tensor, ...]:
    keep = torch.ones(B, S, dtype=torch.bool)
    keep[1, -4:] = False
    return (*qkv(dtype), keep)


pair(
    "padding on the query axis",
    lambda q, k, v, keep: (
        (q @ k.mT * SCALE).masked_fill(~keep[:, None, :, None], -1e9 if q.dtype != torch.float16 else -6e4).softmax(-1)
        @ v
    ),
    lambda q, k, v, keep: (
        (q @ k.mT * SCALE).masked_fill(~keep[:, None, None, :], -1e9 if q.dtype != torch.float16 else -6e4).softmax(-1)
        @ v
    ),
    padded,
)
pair(
    "weights also returned",
    lambda q, k, v: (lambda w: (w @ v, w))((q @ k.mT * SCALE).softmax(-1)),
    lambda q, k, v: (lambda w: (w @ v, q))((q @ k.mT * SCALE).softmax(-1)),
    code="ATTNC-WEIGHTS-USED",
)
pair(
    "dropout in training",
    lambda q, k, v: F.dropout((q @ k.mT * SCALE).softmax(-1), 0.5, True) @ v,
    lambda q, k, v: F.dropout((q @ k.mT * SCALE).softmax(-1), 0.5, False) @ v,
    code="ATTNC-DROPOUT",
    random=True,
)
pair(
    "softmax over the queries",
    lambda q, k, v: (q @ k.mT * SCALE).softmax(-2) @ v,
    lambda q, k, v: (q @ k.mT * SCALE).softmax(-1) @ v,
    code="ATTNC-CONTRACTION",
)
pair(
    "softmax over the heads",
    lambda q, k, v: (q @ k.mT * SCALE).softmax(1) @ v,
    lambda q, k, v: (q @ k.mT * SCALE).softmax(3) @ v,
    code="ATTNC-CONTRACTION",
)


def dead(fill: Callable[[torch.dtype], float]) -> tuple[Program, Program]:
    """A row that sees nothing, by this fill, added; and the same program with every row alive."""

    def masked(hidden: slice) -> Program:
        def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keep = lower(S, S).clone()
            keep[hidden] = False
            mask = torch.zeros(S, S, dtype=q.dtype).masked_fill(~keep, fill(q.dtype))
            return attend(q, k, v, mask)

        return run

    return masked(slice(3, 5)), masked(slice(0, 0))


for label, fill in (
    ("-inf", lambda dtype: -math.inf),
    ("finfo.min", lambda dtype: torch.finfo(dtype).min),
    ("-1e4", lambda dtype: -1e4),
    ("-65504", lambda dtype: -65504.0),
):
    pair(f"dead rows by {label}", *dead(fill))

pair(
    "two masks whose fills add up",
    lambda q, k, v, keep: attend(
        q,
        k,
        v,
        torch.zeros(B, 1, S, S).masked_fill(~lower(S, S), torch.finfo(q.dtype).min).to(q.dtype)
        + torch.zeros(B, 1, 1, S).masked_fill(~keep[:, None, None].flip(-1), torch.finfo(q.dtype).min).to(q.dtype),
    ),
    lambda q, k, v, keep: attend(
        q, k, v, torch.zeros(B, 1, S, S).masked_fill(~lower(S, S), torch.finfo(q.dtype).min).to(q.dtype)
    ),
    padded,
)
pair(
    "a bias that is no mask",
    lambda q, k, v: attend(q, k, v, torch.zeros(S, S, dtype=q.dtype).masked_fill(~lower(S, S), -5.0)),
    lambda q, k, v: attend(q, k, v, torch.zeros(S, S, dtype=q.dtype).masked_fill(~lower(S, S), -1e4)),
)


def cached(write: bool) -> Program:
    """Attention over a buffer that is written first; the trap reads it before the write."""

    def run(q: Tensor, k: Tensor, v: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        before = cache.clone()
        cache[:, :, 2:4] = k[:, :, 2:4]
        return attend(q, cache if write else before, v), cache * 1.0

    return run


def with_cache(dtype: torch.dtype) -> tuple[Tensor, ...]:
    return (*qkv(dtype), torch.randn(B, H, S, D, generator=torch.Generator().manual_seed(9)).to(dtype))


pair("the cache as it was before the write", cached(False), cached(True), with_cache)
pair(
    "heads repeated in tile order",
    lambda q, k, v: attend(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)),
    lambda q, k, v: attend(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)),
    lambda dtype: qkv(dtype, kv_heads=2),
)
pair(
    "softcap after the mask",
    lambda q, k, v: (2 * torch.tanh((q @ k.mT * SCALE).masked_fill(~lower(S, S), -math.inf) / 2)).softmax(-1) @ v,
    lambda q, k, v: (2 * torch.tanh(q @ k.mT * SCALE / 2)).masked_fill(~lower(S, S), -math.inf).softmax(-1) @ v,
)
pair(
    "scale after the mask",
    lambda q, k, v: (
        ((q @ k.mT + torch.zeros(S, S, dtype=q.dtype).masked_fill(~lower(S, S), -8.0)) * SCALE).softmax(-1) @ v
    ),
    lambda q, k, v: (
        (q @ k.mT * SCALE + torch.zeros(S, S, dtype=q.dtype).masked_fill(~lower(S, S), -8.0)).softmax(-1) @ v
    ),
)
pair(
    "a mask that depends on the scores",
    lambda q, k, v: (lambda s: s.masked_fill(s < 0, -math.inf).softmax(-1) @ v)(q @ k.mT * SCALE),
    lambda q, k, v: (lambda s: s.masked_fill(q[..., :1] > 9, -math.inf).softmax(-1) @ v)(q @ k.mT * SCALE),
    code="ATTNC-SCORE-CONDITION",
)
pair(
    "weights mixed over the heads",
    lambda q, k, v: (
        torch.einsum("gh,bhqk->bgqk", torch.eye(H, dtype=q.dtype) + 0.1, (q @ k.mT * SCALE).softmax(-1)) @ v
    ),
    lambda q, k, v: torch.einsum("bhqk,bhkd->bhqd", (q @ k.mT * SCALE).softmax(-1), v),
    code="ATTNC-CONTRACTION",
)
pair(
    "a classifier's softmax",
    lambda q, k, v: (q @ k.mT * SCALE).softmax(-1).argmax(-1),
    lambda q, k, v: (q @ k.mT * SCALE).softmax(-1) @ v,
    code="ATTNC-NOT-ATTENTION",
)
pair(
    "scores added to their transpose",
    lambda q, k, v: (lambda s: (s + s.mT).softmax(-1) @ v)(q @ k.mT * SCALE),
    lambda q, k, v: (lambda s: (s + s).softmax(-1) @ v)(q @ k.mT * SCALE),
    code="ATTNC-CONTRACTION",
)
pair(
    "NaN replaced by another number than 0",
    lambda q, k, v: (q @ k.mT * SCALE).softmax(-1).nan_to_num(0.5) @ v,
    lambda q, k, v: (q @ k.mT * SCALE).softmax(-1).nan_to_num(0.0) @ v,
    code="ATTNC-WEIGHTS-OP",
)


# -- softmax written out, and sinks -----------------------------------------------------------------------------------


def exponentials(q: Tensor, k: Tensor) -> Tensor:
    raw = q @ k.mT * SCALE
    return (raw - raw.amax(-1, keepdim=True)).exp()


def summed(e: Tensor) -> tuple[Tensor, Tensor]:
    return e, e.sum(-1, keepdim=True)


pair(
    "sum over the keys broadcast over the queries",
    lambda q, k, v: (lambda e: (e / e.sum(-1)) @ v[0, 0])(exponentials(q[0, 0], k[0, 0])),
    lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True)) @ v[0, 0])(exponentials(q[0, 0], k[0, 0])),
    code="ATTNC-SOFTMAX-FORM",
)
pair(
    "exponentials summed over the queries",
    lambda q, k, v: (lambda e: (e / e.sum(-2, keepdim=True)) @ v)(exponentials(q, k)),
    lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True)) @ v)(exponentials(q, k)),
    code="ATTNC-SCORE-CONDITION",
)
pair(
    "a large number in the denominator",
    lambda q, k, v: (lambda e: (e / (e.sum(-1, keepdim=True) + 1e-2)) @ v)(exponentials(q, k)),
    lambda q, k, v: (lambda e: (e / (e.sum(-1, keepdim=True) + 1e-12)) @ v)(exponentials(q, k)),
    code="ATTNC-SOFTMAX-FORM",
)
pair(
    "the sum clamped above 1",
    lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True).clamp(min=3.0)) @ v)(exponentials(q, k)),
    lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True).clamp(min=0.5)) @ v)(exponentials(q, k)),
    code="ATTNC-SOFTMAX-FORM",
)
pair(
    "product divided by another row's sum",
    lambda q, k, v: (lambda e: (e @ v) / e.sum(-1).mT[..., None])(exponentials(q, k)),
    lambda q, k, v: (lambda e: (e @ v) / e.sum(-1)[..., None])(exponentials(q, k)),
    square,
    code="ATTNC-SOFTMAX-FORM",
)
pair(
    "product divided along the features",
    lambda q, k, v: (lambda e: (e @ v[..., :S]) / e.sum(-1)[:, :, None])(exponentials(q, k)),
    lambda q, k, v: (lambda e: (e @ v[..., :S]) / e.sum(-1)[:, :, :, None])(exponentials(q, k)),
    code="ATTNC-SOFTMAX-FORM",
)
pair(
    "the sum read elsewhere too",
    lambda q, k, v: (lambda e, z: ((e @ v) / z, z.log()))(*summed(exponentials(q, k))),
    lambda q, k, v: (lambda e, z: ((e @ v) / z, q.cos()))(*summed(exponentials(q, k))),
    code="ATTNC-SOFTMAX-FORM",
)


def columns(q: Tensor, k: Tensor) -> Tensor:
    sink = torch.linspace(0, 3, H).to(q.dtype)[None, :, None, None].expand(B, H, S, 1)
    return torch.cat((q @ k.mT * SCALE, sink), -1).softmax(-1)


pair(
    "the wrong column dropped",
    lambda q, k, v: columns(q, k)[..., 1:] @ v,
    lambda q, k, v: columns(q, k)[..., :-1] @ v,
    code="ATTNC-WEIGHTS-OP",
)
pair(
    "the sink column kept, for a value of its own",
    lambda q, k, v: columns(q, k) @ torch.cat((v, v[:, :, :1]), -2),
    lambda q, k, v: columns(q, k)[..., :S] @ v,
    code="ATTNC-SCORE-OP",
)
pair(
    "one added to the shifted sum",
    lambda q, k, v: (lambda e: (e / (e.sum(-1, keepdim=True) + 1)) @ v)(exponentials(q, k)),
    lambda q, k, v: (lambda e: (e / (e.sum(-1, keepdim=True) + 1)) @ v)((q @ k.mT * SCALE).exp()),
    code="ATTNC-SOFTMAX-FORM",
)
