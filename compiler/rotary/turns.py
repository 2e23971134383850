"""Turns: an angle as Σ scale · position · frequency, and the arithmetic of such sums."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnc.compiler.rotary.reads import Cut, NotRotation
from attnc.ir.values import Op, Value

MAX_TURNS = 4
"""Positions an angle may depend on: time, height, width and one more."""


@dataclass(frozen=True)
class Ones:
    """A tensor of ones, of this length."""

    length: int


@dataclass(frozen=True)
class Pad:
    """Zeros before and after the positions along a place (see :class:`Position`)."""

    place: int
    before: int
    after: int


@dataclass(frozen=True)
class Position:
    """A tensor of positions, or the first n integers where ``value`` is a number n.

    ``places`` says for each of its dimensions which one of the rotated tensor it runs along, counted from the last
    before the features (0) outward; None is a dimension of length 1. ``fixed`` are (dimension, index) pairs,
    ``windows`` (dimension, slice) pairs still to be applied, ``pads`` zeros to be put around them afterwards.
    """

    value: Value | Ones | int
    places: tuple[int | None, ...]
    fixed: tuple[tuple[int, int], ...] = ()
    windows: tuple[tuple[int, Cut], ...] = ()
    pads: tuple[Pad, ...] = ()


@dataclass(frozen=True)
class Frequency:
    """One element of a tensor of constant shape, by its row-major index; ``number`` itself where there is none.

    ``rounded``: angles are its float32 products with positions.
    """

    value: Value | None
    index: int
    number: float = 0.0
    rounded: bool = False


@dataclass(frozen=True)
class Turn:
    """``scale · position · frequency``; a factor not met yet is None. ``detached``: no gradient flows to either."""

    position: Position | None = None
    frequency: Frequency | None = None
    scale: float = 1.0
    detached: bool = False


Angle = tuple[Turn, ...]
"""A sum of turns."""
Angles = dict[int, Angle]
"""The angle of each lane asked for."""


def products(left: Angles, right: Angles, op: Op) -> Angles:
    """Every turn of one factor times every one of the other. Raises NotRotation for two positions or frequencies."""
    return {lane: added(tuple(_product(a, b, op) for a in angle for b in right[lane])) for lane, angle in left.items()}


def _product(a: Turn, b: Turn, op: Op) -> Turn:
    if a.position is not None and b.position is not None:
        raise NotRotation(f"the angle is not linear in the position: it is multiplied by another at {op.loc}")
    if a.frequency is not None and b.frequency is not None:
        raise NotRotation(f"the angle is multiplied by two frequencies at {op.loc}")
    return Turn(a.position or b.position, a.frequency or b.frequency, a.scale * b.scale)


def scaled(angles: Angles, factor: float) -> Angles:
    """The angles times a number."""
    return {lane: tuple(replace(t, scale=t.scale * factor) for t in angle) for lane, angle in angles.items()}


def added(angle: Angle) -> Angle:
    """A sum with equal products added up, incomplete turns among them. Raises NotRotation for more than MAX_TURNS."""
    totals: dict[tuple[Position | None, Frequency | None], float] = {}
    for turn in angle:
        key = (turn.position, turn.frequency)
        totals[key] = totals.get(key, 0.0) + turn.scale
    if len(totals) > MAX_TURNS:
        raise NotRotation(f"an angle of more than {MAX_TURNS} terms")
    return tuple(Turn(*key, scale) for key, scale in totals.items() if scale)
