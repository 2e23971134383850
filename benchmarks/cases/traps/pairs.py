"""A pair of programs that differ in one op, and what the pairs are written with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

B, H, S, D = 2, 4, 12, 16
SCALE = D**-0.5

Program = Callable[..., Any]
Inputs = Callable[[torch.dtype], tuple[Tensor, ...]]


def qkv(
    dtype: torch.dtype, sq: int = S, sk: int = S, heads: int = H, kv_heads: int = H, batch: int = B
) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((batch, heads, sq, D), (batch, kv_heads, sk, D), (batch, kv_heads, sk, D))
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)


@dataclass(frozen=True)
class Pair:
    """``trap`` and ``twin`` take the same inputs."""

    name: str
    trap: Program
    twin: Program
    inputs: Inputs = qkv
    code: str = ""
    """The code the trap is left with; empty where it fuses by its own meaning."""
    random: bool = False
    """The trap draws random numbers: it is only compared under one seed."""
    attentions: int = 1
    """How many attentions fuse in the twin, and in a trap without code."""

    def expected(self, side: str) -> tuple[set[str], int]:
        """The codes of what is left and the number of fused attentions of the ``trap`` or the ``twin``."""
        return ({self.code}, 0) if side == "trap" and self.code else (set(), self.attentions)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    raw = q @ k.transpose(-2, -1) * SCALE
    return (raw if mask is None else raw + mask).softmax(-1) @ v


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT * SCALE


def lower(rows: int, columns: int, offset: int = 0) -> Tensor:
    return torch.ones(rows, columns, dtype=torch.bool).tril(offset)


def square(dtype: torch.dtype) -> tuple[Tensor, ...]:
    """As many positions as heads: only following the permutation tells them apart."""
    return qkv(dtype, H, H)


def grouped(dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Two key/value heads."""
    return qkv(dtype, kv_heads=2)


def padded(dtype: torch.dtype) -> tuple[Tensor, ...]:
    """q, k, v and the keys to keep [B, S]: the last four of the second batch are padding."""
    keep = torch.ones(B, S, dtype=torch.bool)
    keep[1, -4:] = False
    return (*qkv(dtype), keep)


def low(dtype: torch.dtype) -> float:
    """A finite fill that every dtype holds."""
    return -1e9 if dtype != torch.float16 else -6e4
