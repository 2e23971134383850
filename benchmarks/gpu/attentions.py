"""The variants of attention in plain torch: programs by definition, what they see, and operands as kernels take them.

Written a second time, apart from the compiler's: this file runs where the compiler isn't installed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

WINDOW, CHUNK, PREFIX, CAP, REACH = 512, 512, 256, 50.0, 128
EVERY_PAIR = ("relative-table", "cross")
"""Variants without a mask."""

Sides = tuple[Tensor, ...]


@dataclass(frozen=True)
class Operands:
    """q [B, H, S, D], k and v [B, G, T, D], and the variant's own inputs, on one device."""

    q: Tensor
    k: Tensor
    v: Tensor
    sides: Sides

    @property
    def all(self) -> tuple[Tensor, ...]:
        """q, k, v and the sides."""
        return (self.q, self.k, self.v, *self.sides)

    def wide(self) -> Operands:
        """The same numbers in float64."""
        q, k, v, *sides = (x.double() if x.is_floating_point() else x for x in self.all)
        return Operands(q, k, v, tuple(sides))


def operands(
    variant: str, batch: int, heads: int, kv_heads: int, length: int, features: int, dtype: torch.dtype,
    device: str = "cpu", seed: int = 0, strided: bool = False,
) -> Operands:  # fmt: skip
    """Random operands; keys of ``cross`` are 33 more. ``strided``: heads lie between positions, as projections do."""
    generator = torch.Generator(device).manual_seed(seed)
    keys = length + 33 if variant == "cross" else length

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    def heads_of(count: int, rows: int) -> Tensor:
        if strided:
            return normal(batch, rows, count, features).transpose(1, 2)
        return normal(batch, count, rows, features)

    q, k, v = heads_of(heads, length), heads_of(kv_heads, keys), heads_of(kv_heads, keys)
    if variant == "alibi":
        sides: Sides = (torch.rand(heads, generator=generator, device=device).to(dtype),)
    elif variant == "sinks":
        sides = (normal(heads),)
    elif variant == "documents":
        sides = ((torch.arange(length, dtype=torch.int32, device=device) // document(length)).repeat(batch, 1),)
    elif variant == "relative-table":
        sides = (normal(2 * REACH + 1, heads),)
    elif variant == "dense-mask":
        seen = torch.rand(batch, 1, length, length, generator=generator, device=device) < 0.8
        sides = (seen | torch.eye(length, dtype=torch.bool, device=device),)
    else:
        sides = ()
    return Operands(q, k, v, sides)


def document(length: int) -> int:
    """Positions of one document; the last one may be shorter."""
    return 37 if length < 1024 else 1000


def visible(variant: str, i: Tensor, j: Tensor, sides: Sides) -> Tensor | None:
    """Which pairs of query positions i [n, 1] and key positions j [1, T] are seen; None for all of them."""
    if variant in EVERY_PAIR:
        return None
    if variant == "dense-mask":
        return sides[0][:, :, i[:, 0]]
    causal = j <= i
    if variant == "window":
        return causal & (j > i - WINDOW)
    if variant == "chunked":
        return causal & (j // CHUNK == i // CHUNK)
    if variant == "prefix":
        return causal | (j < PREFIX)
    if variant == "documents":
        return causal & (sides[0][:, None, i[:, 0], None] == sides[0][:, None, None, :])
    return causal


def scored(variant: str, score: Tensor, i: Tensor, j: Tensor, sides: Sides) -> Tensor:
    """The variant's term or function on scaled scores [B, H, n, T]."""
    if variant == "alibi":
        return score + sides[0][:, None, None] * (j - i)
    if variant == "softcap":
        return torch.tanh(score / CAP) * CAP
    if variant == "relative-table":
        return score + sides[0][(j - i).clamp(-REACH, REACH) + REACH].permute(2, 0, 1)
    return score


def program(variant: str, q: Tensor, k: Tensor, v: Tensor, *sides: Tensor, first: int = 0) -> Tensor:
    """Attention by definition, in the operands' dtype: [B, H, n, D] for the queries from ``first`` on."""
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    i = torch.arange(first, q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)[None, :]
    score = scored(variant, (q[:, :, first:] @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5, i, j, sides)
    seen = visible(variant, i, j, sides)
    if seen is not None:
        score = score.masked_fill(~seen, -math.inf)
    if variant != "sinks":
        return score.softmax(-1) @ v
    column = sides[0][None, :, None, None].expand(*score.shape[:3], 1)
    return torch.cat([score, column], -1).softmax(-1)[..., :-1] @ v


def pairs(variant: str, batch: int, queries: int, keys: int, sides: Sides = ()) -> int:
    """How many pairs of a query and a key one head sees, over the batch."""
    if variant == "dense-mask":
        return int(sides[0].sum().item())
    if variant in EVERY_PAIR:
        return batch * queries * keys
    row = np.arange(queries, dtype=np.int64)
    seen = {
        "window": np.minimum(row + 1, WINDOW),
        "chunked": row % CHUNK + 1,
        "prefix": np.maximum(row + 1, min(PREFIX, keys)),
        "documents": row % document(queries) + 1,
    }.get(variant, row + 1)
    return batch * int(seen.sum())


def flops(variant: str, given: Operands) -> float:
    """Operations of both products over visible pairs: 4 · D for each pair of each head."""
    batch, heads, queries, features = given.q.shape
    return 4.0 * features * heads * pairs(variant, batch, queries, given.k.shape[2], given.sides)


# -- what a kernel takes and returns


def key_heads(kernel: Mapping[str, Any], heads: int) -> int:
    """The keys' heads for so many of the queries: 1, or in the kernel's own proportion."""
    return 1 if kernel["kv_heads"] == 1 else heads * int(kernel["kv_heads"]) // int(kernel["heads"])


def arranged(
    kernel: Mapping[str, Any], given: Operands
) -> tuple[Tensor, Tensor, Tensor, list[Tensor], tuple[int, ...]]:
    """(q, k, v, sides, sizes) in the axes of a kernel of the manifest."""
    q, k, v = given.q, given.k, given.v
    if {"h", "g"} <= set(kernel["axes"]["q"]):
        q = q.view(q.shape[0], k.shape[1], -1, *q.shape[2:])
    if "h" not in kernel["axes"]["k"]:
        k, v = k[:, 0], v[:, 0]
    sides = [by_offset(side, given.q.shape[2]) if kernel["side"] == "by-offset" else side for side in given.sides]
    return q, k, v, sides, tuple(given.q.shape[2] for _ in kernel["sizes"])


def by_offset(table: Tensor, length: int) -> Tensor:
    """[1, H, 2 S − 1] from a table [2 · REACH + 1, H]: its value at each offset k − q, from 1 − S to S − 1."""
    offset = torch.arange(1 - length, length, device=table.device).clamp(-REACH, REACH) + REACH
    return table[offset].T[None].contiguous()


def restored(kernel: Mapping[str, Any], out: Tensor) -> Tensor:
    """A kernel's result as [B, H, S, D]."""
    axes = list(kernel["axes"]["out"])
    out = out.permute([axes.index(axis) for axis in "bhgqe" if axis in axes])
    return out.flatten(1, 2) if {"h", "g"} <= set(axes) else out
