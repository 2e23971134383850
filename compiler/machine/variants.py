"""The kinds of attention that every target is tried on: small programs in plain torch, compiled like any model's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

HEADS = 4

Score = Callable[[Tensor, Tensor, Tensor, tuple[Tensor, ...]], Tensor]
"""(score, query positions [S, 1], key positions [1, T], side inputs) → score."""
Visible = Callable[[Tensor, Tensor, tuple[Tensor, ...], int], Tensor]
"""(query positions [S, 1], key positions [1, T], side inputs, reach in positions) → what is visible."""


def _plain(s: Tensor, i: Tensor, j: Tensor, side: tuple[Tensor, ...]) -> Tensor:
    return s


def _alibi(s: Tensor, i: Tensor, j: Tensor, side: tuple[Tensor, ...]) -> Tensor:
    return s + side[0][:, None, None] * (j - i)


def _softcap(s: Tensor, i: Tensor, j: Tensor, side: tuple[Tensor, ...]) -> Tensor:
    return torch.tanh(s / 50.0) * 50.0


def _table(s: Tensor, i: Tensor, j: Tensor, side: tuple[Tensor, ...]) -> Tensor:
    return s + side[0][(j - i).clamp(-128, 128) + 128].permute(2, 0, 1)


def _all(i: Tensor, j: Tensor, side: tuple[Tensor, ...], reach: int) -> Tensor:
    return i + j >= 0


def _causal(i: Tensor, j: Tensor, side: tuple[Tensor, ...], reach: int) -> Tensor:
    return j <= i


def _window(i: Tensor, j: Tensor, side: tuple[Tensor, ...], reach: int) -> Tensor:
    return (j <= i) & (j > i - reach)


def _chunked(i: Tensor, j: Tensor, side: tuple[Tensor, ...], reach: int) -> Tensor:
    return (j <= i) & (j // reach == i // reach)


def _prefix(i: Tensor, j: Tensor, side: tuple[Tensor, ...], reach: int) -> Tensor:
    return (j <= i) | (j < reach // 2)


def _same_document(i: Tensor, j: Tensor, side: tuple[Tensor, ...], reach: int) -> Tensor:
    return (j <= i) & (side[0][:, None, :, None] == side[0][:, None, None, :])


def _given(i: Tensor, j: Tensor, side: tuple[Tensor, ...], reach: int) -> Tensor:
    return side[0]


@dataclass(frozen=True)
class Input:
    """An input beside q, k and v: made for a batch and a length, with names of the dimensions that are no constants."""

    make: Callable[[int, int], Tensor]
    dims: Mapping[int, str] = field(default_factory=dict, hash=False)


def _documents(batch: int, length: int) -> Tensor:
    return torch.arange(length, dtype=torch.int32).expand(batch, length) // 37


def _mask(batch: int, length: int) -> Tensor:
    return (torch.rand(batch, 1, length, length) < 0.8) | torch.eye(length, dtype=torch.bool)


def _padding(batch: int, length: int) -> Tensor:
    """Keys hidden on the left of each sequence; in the last one all of them."""
    return torch.tensor([*(length // 3 + i for i in range(batch - 1)), 1 << 20])


@dataclass(frozen=True)
class Variant:
    """A kind of attention and its inputs."""

    name: str
    score: Score = _plain
    visible: Visible = _causal
    side: Input | None = None
    kv_heads: int = HEADS
    sink: bool = False
    """The side input is one more logit of each head's denominator (gpt-oss)."""
    cross: bool = False
    """Keys have a length of their own."""

    def inputs(
        self, head_dim: int, dtype: torch.dtype, batch: int = 2, length: int = 96, padded: bool = False
    ) -> tuple[Tensor, ...]:
        """Random inputs; floats have ``dtype``."""
        keys = length + 33 if self.cross else length
        q = torch.randn(batch, HEADS, length, head_dim)
        k, v = (torch.randn(batch, self.kv_heads, keys, head_dim) for _ in range(2))
        sides = [input.make(batch, length) for input in self._sides(padded)]
        return tuple(x.to(dtype) if x.is_floating_point() else x for x in (q, k, v, *sides))

    def dims(self, padded: bool = False) -> dict[str, object]:
        """``dynamic_shapes`` of ``torch.export`` for any batch B, query length S and key length T."""
        named = {name: torch.export.Dim(name, min=1, max=1 << 20) for name in ("B", "S", "T")}
        keys = {0: named["B"], 2: named["T" if self.cross else "S"]}
        shapes: dict[str, object] = {"q": {0: named["B"], 2: named["S"]}, "k": keys, "v": keys}
        if sides := tuple({i: named[n] for i, n in input.dims.items()} for input in self._sides(padded)):
            shapes["sides"] = sides
        return shapes

    def _sides(self, padded: bool) -> list[Input]:
        return [*([self.side] if self.side is not None else []), *([Input(_padding, {0: "B"})] if padded else [])]


VARIANTS = {
    v.name: v
    for v in (
        Variant("causal"),
        Variant("window", visible=_window),
        Variant("chunked", visible=_chunked),
        Variant("prefix", visible=_prefix),
        Variant("alibi", _alibi, side=Input(lambda b, s: torch.rand(HEADS))),
        Variant("softcap", _softcap),
        Variant("sinks", side=Input(lambda b, s: torch.randn(HEADS)), sink=True),
        Variant("documents", visible=_same_document, side=Input(_documents, {0: "B", 1: "S"})),
        Variant("relative-table", _table, _all, Input(lambda b, s: torch.randn(257, HEADS))),
        Variant("dense-mask", visible=_given, side=Input(_mask, {0: "B", 2: "S", 3: "S"})),
        Variant("gqa", kv_heads=2),
        Variant("mqa", kv_heads=1),
        Variant("cross", visible=_all, cross=True),
    )
}


class Model(nn.Module):
    """A variant as a module.

    ``padded``: the last side input says how many keys each sequence hides on its left, so that causal rows see none.
    ``fill`` is what a hidden score becomes, ``reach`` the length of a window, of a chunk and of two prefixes.
    """

    def __init__(self, variant: Variant, padded: bool = False, fill: float = float("-inf"), reach: int = 512) -> None:
        super().__init__()
        self.variant, self.padded, self.fill, self.reach = variant, padded, fill, reach

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *sides: Tensor) -> Tensor:
        """[batch, heads, queries, head_dim], of q's dtype."""
        variant = self.variant
        groups = q.shape[1] // variant.kv_heads
        if groups > 1:
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
        score = variant.score((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5, i, j, sides)
        visible = variant.visible(i, j, sides, self.reach)
        if self.padded:
            visible = visible & (j >= sides[-1][:, None, None, None])
        if variant.visible is not _all or self.padded:
            score = score.masked_fill(~visible, self.fill)
        if not variant.sink:
            return score.softmax(-1) @ v
        column = sides[0][None, :, None, None].expand(score.shape[0], -1, score.shape[2], 1)
        return torch.cat([score, column], -1).softmax(-1)[..., :-1] @ v
