"""Attentions put together at random: a mask, a bias, a scale, a head form, a layout, a softmax, sizes and a dtype.

Every combination is an attention somebody could write, so every one must come out right, and nearly all must fuse.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

MASKS = ("none", "causal", "window", "padding", "added padding", "documents", "prefix", "left padding")
BIASES = ("none", "alibi", "table", "softcap", "dense", "key")
SCALES = ("none", "div", "mul", "query", "both", "tensor")
HEADS = ("mha", "repeated", "grouped", "multi-query", "cross")
LAYOUTS = ("heads first", "sequence first", "folded", "einsum")
SOFTMAXES = ("named", "float32", "written out", "late", "sink")
DTYPES = ("float32", "bfloat16", "float16")
GROUP = 2


@dataclass(frozen=True)
class Composition:
    """One choice on every axis. ``heads`` counts query heads; a grouped form has ``heads / GROUP`` key heads."""

    mask: str
    bias: str
    scale: str
    head_form: str
    layout: str
    softmax: str
    dtype: str
    batch: int
    heads: int
    queries: int
    keys: int
    features: int

    @property
    def choices(self) -> tuple[tuple[str, str], ...]:
        """(axis, value) of each axis that has named values."""
        return tuple((f.name, getattr(self, f.name)) for f in fields(self) if f.type == "str")

    @property
    def kv_heads(self) -> int:
        return {"repeated": self.heads // GROUP, "grouped": self.heads // GROUP, "multi-query": 1}.get(
            self.head_form, self.heads
        )

    def inputs(self, seed: int = 0) -> list[Tensor]:
        """q, k, v as the layout wants them, the padding mask [B, keys], a bias [H, Sq, Sk], a number for each head."""
        generator = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(getattr(torch, self.dtype))

        q = random(self.batch, self.heads, self.queries, self.features)
        k, v = (random(self.batch, self.kv_heads, self.keys, self.features) for _ in "kv")
        if self.layout == "sequence first":
            q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
        keep = torch.ones(self.batch, self.keys, dtype=torch.long)
        hidden = max(1, self.keys // 3)
        if self.mask == "left padding":
            keep[-1, :hidden] = 0
        else:
            keep[-1, self.keys - hidden :] = 0
        return [q, k, v, keep, random(self.heads, self.queries, self.keys), random(self.heads)]

    def program(self) -> Callable[..., Tensor]:
        """The function of :meth:`inputs`."""
        return lambda q, k, v, keep, dense, per_head: _attend(self, q, k, v, keep, dense, per_head)


def _attend(c: Composition, q: Tensor, k: Tensor, v: Tensor, keep: Tensor, dense: Tensor, per_head: Tensor) -> Tensor:
    if c.layout == "sequence first":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if c.head_form == "repeated":
        k, v = (x.repeat_interleave(GROUP, 1) for x in (k, v))
    scores = _masked(c, _biased(c, _scaled_product(c, q, k), dense, per_head), keep)
    out = _weighted(c, scores, v, per_head)
    return out.transpose(1, 2).reshape(c.batch, c.queries, -1) if c.layout == "sequence first" else out


# -- scores ----------------------------------------------------------------------------------------------------------


def _scaled_product(c: Composition, q: Tensor, k: Tensor) -> Tensor:
    factor = c.features**-0.5
    if c.scale == "query":
        q = q * factor
    if c.scale == "both":
        q, k = q * factor**0.5, k * factor**0.5
    product = _product(c, q, k)
    match c.scale:
        case "div":
            return product / math.sqrt(c.features)
        case "mul":
            return product * factor
        case "tensor":
            return product / torch.tensor(float(c.features), dtype=q.dtype).sqrt()
    return product


def _product(c: Composition, q: Tensor, k: Tensor) -> Tensor:
    """Q·Kᵀ as [B, H, Sq, Sk]."""
    if c.head_form == "grouped":
        grouped = q.unflatten(1, (-1, GROUP))
        if c.layout == "einsum":
            return torch.einsum("bhgqd,bhkd->bhgqk", grouped, k).flatten(1, 2)
        return (grouped @ k.unsqueeze(2).mT).flatten(1, 2)
    if c.layout == "einsum" and c.head_form != "multi-query":
        return torch.einsum("bhqd,bhkd->bhqk", q, k)
    if c.layout == "folded" and c.head_form != "multi-query":
        return torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)).unflatten(0, (c.batch, c.heads))
    return q @ k.transpose(-2, -1)


def _biased(c: Composition, scores: Tensor, dense: Tensor, per_head: Tensor) -> Tensor:
    row, column = torch.arange(c.queries)[:, None], torch.arange(c.keys)[None, :]
    match c.bias:
        case "alibi":
            slopes = 2.0 ** (-torch.arange(1, c.heads + 1).to(scores.dtype))
            return scores + slopes[:, None, None] * (column - row)
        case "table":
            table = torch.linspace(-1, 1, 33, dtype=scores.dtype)[:, None] * per_head
            return scores + F.embedding((column - row).clamp(-16, 16) + 16, table).permute(2, 0, 1)
        case "softcap":
            return 5.0 * torch.tanh(scores / 5.0)
        case "dense":
            return scores + dense
        case "key":
            return scores + dense[:1, :1]
    return scores


def _masked(c: Composition, scores: Tensor, keep: Tensor) -> Tensor:
    row, column = torch.arange(c.queries)[:, None], torch.arange(c.keys)[None, :]
    padding = keep.bool()[:, None, None, :]
    match c.mask:
        case "causal":
            return scores.masked_fill(column > row, -math.inf)
        case "window":
            return torch.where((column <= row) & (column > row - 5), scores, torch.finfo(scores.dtype).min)
        case "padding":
            return scores.masked_fill(~padding, -math.inf)
        case "added padding":
            return scores + (1.0 - keep.to(scores.dtype))[:, None, None, :] * torch.finfo(scores.dtype).min
        case "documents":
            return scores.masked_fill(row // 4 != column // 4, -1e4)
        case "prefix":
            return scores.masked_fill((column > row) & (column >= 3), -math.inf)
        case "left padding":
            return scores.masked_fill(~(padding & (column <= row)), torch.finfo(scores.dtype).min)
    return scores


# -- softmax and the product with V ----------------------------------------------------------------------------------


def _weighted(c: Composition, scores: Tensor, v: Tensor, per_head: Tensor) -> Tensor:
    match c.softmax:
        case "float32":
            return _times_values(c, F.softmax(scores, -1, dtype=torch.float32).to(v.dtype), v)
        case "written out":
            exp = _exponentials(scores)
            return _times_values(c, exp / exp.sum(-1, keepdim=True), v)
        case "late":
            exp = _exponentials(scores)
            return _times_values(c, exp, v) / exp.sum(-1, keepdim=True)
        case "sink":
            column = per_head[None, :, None, None].expand(c.batch, -1, c.queries, 1)
            return _times_values(c, torch.cat((scores, column), -1).softmax(-1)[..., :-1], v)
    return _times_values(c, scores.softmax(-1), v)


def _exponentials(scores: Tensor) -> Tensor:
    return (scores - scores.amax(-1, keepdim=True)).exp()


def _times_values(c: Composition, weights: Tensor, v: Tensor) -> Tensor:
    if c.head_form == "grouped":
        return (weights.unflatten(1, (-1, GROUP)) @ v.unsqueeze(2)).flatten(1, 2)
    if c.layout == "einsum" and c.head_form != "multi-query":
        return torch.einsum("bhqk,bhkd->bhqd", weights, v)
    if c.layout == "folded" and c.head_form != "multi-query":
        return torch.bmm(weights.flatten(0, 1), v.flatten(0, 1)).unflatten(0, (c.batch, c.heads))
    return weights @ v
