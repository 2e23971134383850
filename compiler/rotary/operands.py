"""The operands of a rotation: for each position its frequencies, and where these are read from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from attnc.compiler.rotary.reads import NotRotation
from attnc.compiler.rotary.turns import Angle, Frequency, Position, Turn
from attnc.ir.values import Value

MAX_POSITIONS = 4
MAX_RUNS = 8
"""Slices a frequency operand may be put together from."""

Entries = tuple[tuple[Frequency, float] | None, ...]
"""For each pair its frequency and the scale on it; None where the position doesn't turn it."""


@dataclass(frozen=True)
class Run:
    """``count`` pairs from ``start`` on, every ``step``: elements of one tensor from ``first`` on, every ``stride``."""

    start: int
    step: int
    first: int
    stride: int
    count: int


@dataclass(frozen=True)
class Operands:
    """What the angles of a rotation are made of: for each position its frequencies."""

    turns: tuple[tuple[Position, bool, Entries], ...]
    """Position, whether its gradient is cut, frequencies."""

    @staticmethod
    def of(angles: Iterable[Angle]) -> Operands:
        """Raises NotRotation for more than MAX_POSITIONS, or frequencies in no order."""
        listed = list(angles)
        positions = dict.fromkeys((turn.position, turn.detached) for angle in listed for turn in angle)
        if not 1 <= len(positions) <= MAX_POSITIONS:
            raise NotRotation(f"the angles depend on {len(positions)} positions, at most {MAX_POSITIONS} are known")
        found = []
        for position, detached in positions:
            assert position is not None  # angles are complete
            entries = tuple(_entry(position, angle) for angle in listed)
            runs_of(entries)
            found.append((position, detached, entries))
        return Operands(tuple(found))


def _entry(position: Position, angle: Angle) -> tuple[Frequency, float] | None:
    found = [turn for turn in angle if turn.position == position]
    if len(found) > 1:
        raise NotRotation("a position is multiplied by a sum of frequencies")
    (turn,) = found or (Turn(),)
    return None if turn.frequency is None else (turn.frequency, turn.scale)


def runs_of(entries: Entries) -> list[tuple[Value | None, float, list[Run]]]:
    """The tensors the frequencies are read from, each with its scale and runs. Raises NotRotation for too many runs."""
    tensors = dict.fromkeys((f.value, scale) for f, scale in filter(None, entries))
    found = []
    for value, scale in tensors:
        places = [(i, e[0].index) for i, e in enumerate(entries) if e and (e[0].value, e[1]) == (value, scale)]
        found.append((value, scale, _runs(places)))
    if sum(len(runs) for _, _, runs in found) > MAX_RUNS:
        raise NotRotation("the frequencies are taken from their tensor in no order")
    return found


def _runs(places: list[tuple[int, int]]) -> list[Run]:
    """(pair, element) places as arithmetic progressions, taken greedily."""
    runs: list[Run] = []
    while places:
        (start, first), *rest = places
        step, stride = (rest[0][0] - start, rest[0][1] - first) if rest else (1, 1)
        count = 1
        while count < len(places) and places[count] == (start + count * step, first + count * stride):
            count += 1
        if stride < 1:
            step, stride, count = 1, 1, 1
        runs.append(Run(start, step, first, stride, count))
        places = places[count:]
    return runs
