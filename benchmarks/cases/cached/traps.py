"""Decoders whose own cache isn't what a whole sequence computes: each in one place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnc.models.layers import rope_table, rotate
from benchmarks.cases.cached.carried import ALIBI, BAND, LEARNED, ROTARY, WINDOW
from benchmarks.cases.cached.net import (
    FEATURES,
    LIMIT,
    Concatenated,
    Counting,
    Growing,
    Net,
    Parts,
    Sliced,
    Static,
    copied,
    net,
)


@dataclass(frozen=True)
class Trap:
    """``make`` makes the bad model; ``twin`` names the one of ``CARRIED`` that differs from it in one place."""

    name: str
    make: Callable[[], nn.Module]
    twin: str
    reason: str
    """A word or two that the refusal must hold, in lower case."""
    located: bool = True
    """Whether the refusal names an op and its line."""


def _past(
    name: str, twin: str, reason: str, parts: Parts, growing: Growing | None = None, located: bool = True
) -> Trap:
    def make() -> nn.Module:
        return Concatenated(net(parts), growing or Growing()).eval()

    return Trap(name, make, f"past-{twin}", reason, located)


def again(whole: Tensor, past: Tensor | None, new: Tensor) -> Tensor:
    """Rotated once more by all positions."""
    return rotate(whole, *rope_table(torch.arange(whole.shape[2]), FEATURES, 100.0, whole.dtype))


def from_end(net: Net, k: Tensor, keys: Tensor) -> Tensor:
    """Keys rotated by how far they are from the last."""
    return rotate(k, *rope_table(keys.shape[0] - 1 - keys, FEATURES, 100.0, k.dtype))


def rows(at: Tensor) -> Tensor:
    return torch.arange(at.shape[0])


def relative(buffer: Tensor, at: Tensor, new: Tensor) -> Tensor:
    """Written one place too late."""
    return copied(buffer, (at + 1) % LIMIT, new)


def first(buffer: Tensor, at: Tensor, new: Tensor) -> Tensor:
    """Written at the number among the new tokens."""
    return copied(buffer, rows(at), new)


def backward(buffer: Tensor, at: Tensor, new: Tensor) -> Tensor:
    return copied(buffer, LIMIT - 1 - at, new)


def ring(buffer: Tensor, at: Tensor, new: Tensor) -> Tensor:
    """A buffer as long as the window, written round and round."""
    return copied(buffer, at % WINDOW, new)


def unwritten(buffer: Tensor, at: Tensor, new: Tensor) -> Tensor:
    """What the buffer held before is attended to."""
    before = buffer.clone()
    copied(buffer, at, new)
    return before


def added(buffer: Tensor, at: Tensor, new: Tensor) -> Tensor:
    buffer.index_add_(2, at, new)
    return buffer


def scaled(buffer: Tensor, at: Tensor, new: Tensor) -> Tensor:
    """Everything fades a little at each step."""
    buffer.mul_(0.9)
    return copied(buffer, at, new)


def reversed_rows(buffer: Tensor, at: Tensor, new: Tensor) -> Tensor:
    return copied(buffer, at, new.flip(2))


class Late(Sliced):
    """Slices that begin one place too late."""

    def forward(self, input_ids: Tensor, start_pos: int) -> Tensor:
        return super().forward(input_ids, start_pos + 1)


class Slow(Counting):
    """A count that goes up by one."""

    def forward(self, input_ids: Tensor) -> Tensor:
        logits = super().forward(input_ids)
        self.seen.sub_(input_ids.shape[1] - 1)
        return logits


def _buffer(name: str, twin: str, reason: str, make: Callable[[], nn.Module], located: bool = True) -> Trap:
    return Trap(name, lambda: make().eval(), f"buffer-{twin}", reason, located)


def _shown(at: Tensor, keys: Tensor) -> Tensor:
    """The last place of a buffer is visible to all."""
    return (keys[None, :] <= at[:, None]) | (keys[None, :] == LIMIT - 1)


def _wrong(parts: Parts, **changes: object) -> Parts:
    return dataclasses.replace(parts, **changes)  # type: ignore[arg-type]


TRAPS: tuple[Trap, ...] = (
    _past("the past behind the new keys", "learned", "come first", LEARNED, Growing(lambda p, n: torch.cat((n, p), 2))),
    _past("positions ignore the past", "learned", "", _wrong(LEARNED, embedded=lambda at, earlier: at - earlier)),
    _past("rotations ignore the past", "rotary", "", _wrong(ROTARY, embedded=lambda at, earlier: rows(at))),
    _past("positions twice the past", "rotary", "", _wrong(ROTARY, embedded=lambda at, earlier: at + earlier)),
    _past(
        "a mask that is off by the past",
        "rotary",
        "mask",
        _wrong(ROTARY, visible=lambda at, keys: keys[None, :] <= rows(at)[:, None]),
    ),
    _past(
        "a window from the first new token",
        "window",
        "mask",
        _wrong(BAND, visible=lambda at, keys: (keys[None, :] <= at[:, None]) & (keys[None, :] > at[:1, None] - WINDOW)),
    ),
    _past(
        "all of the past and no new token but its own",
        "rotary",
        "mask",
        _wrong(
            ROTARY,
            visible=lambda at, keys: (keys[None, :] < at[:1, None]) | (keys[None, :] == at[:, None]),
        ),
    ),
    _past(
        "a bias from the first new token",
        "alibi",
        "",
        _wrong(ALIBI, bias=lambda at, keys: (keys[None, :] - at[:1, None] - rows(at)[:, None] * 2).float()),
    ),
    _past("cached keys rotated again", "rotary", "given back", ROTARY, Growing(kept=again)),
    _past("keys rotated from the end", "rotated when read", "", Parts(rotary=True, late=True, stored=from_end)),
    _past("a past that is rolled", "rotary", "given back", ROTARY, Growing(kept=lambda w, p, n: w.roll(1, 2))),
    _past("a past that is summed", "rotary", "given back", ROTARY, Growing(kept=lambda w, p, n: w.cumsum(2))),
    _past("a past turned around", "rotary", "given back", ROTARY, Growing(kept=lambda w, p, n: w.flip(2))),
    _past("only the last are kept", "window", "", BAND, Growing(kept=lambda w, p, n: w[:, :, -WINDOW:]), located=False),
    _past(
        "keys given back as values",
        "rotary",
        "given back",
        ROTARY,
        Growing(pairs=lambda pairs: tuple((v, k) for k, v in pairs)),
    ),
    _past("layers given back in turn", "rotary", "given back", ROTARY, Growing(pairs=lambda pairs: pairs[::-1])),
    _past("a past that fades", "rotary", "computed with", ROTARY, Growing(lambda p, n: torch.cat((p * 0.9, n), 2))),
    _past(
        "another position on an empty cache",
        "learned",
        "empty cache",
        LEARNED,
        Growing(at=lambda new, earlier: new + earlier + (0 if earlier else 3)),
        located=False,
    ),
    _past("the new rows from both ends", "rotary", "", ROTARY, Growing(lambda p, n: torch.cat((p, n.flip(2)), 2))),
    _buffer("written one place too late", "index_copy", "places", lambda: Static(net(ROTARY), relative)),
    _buffer("written from the beginning", "index_copy", "places", lambda: Static(net(ROTARY), first)),
    _buffer("written from the end", "index_copy", "places", lambda: Static(net(ROTARY), backward)),
    _buffer("a ring without positions", "window", "places", lambda: Static(net(BAND), ring, WINDOW)),
    _buffer("read before it is written", "index_copy", "", lambda: Static(net(ROTARY), unwritten)),
    _buffer("added to", "index_copy", "computed with", lambda: Static(net(ROTARY), added)),
    _buffer("a buffer that fades", "index_copy", "computed with", lambda: Static(net(ROTARY), scaled)),
    _buffer("rows in the opposite order", "index_copy", "", lambda: Static(net(ROTARY), reversed_rows)),
    _buffer("an empty place is seen", "index_copy", "", lambda: Static(net(_wrong(ROTARY, visible=_shown)), copied)),
    _buffer(
        "everything is seen",
        "index_copy",
        "",
        lambda: Static(net(_wrong(ROTARY, visible=lambda at, keys: keys[None, :] >= 0 * at[:, None])), copied),
    ),
    _buffer("a count of steps", "counted", "count", lambda: Slow(net(ROTARY), copied)),
    _buffer("slices one place too late", "slices", "", lambda: Late(net(_wrong(ROTARY, learned=True)), copied)),
)
