"""Constant tables of cosines and sines: a column is one where its whole content is cos(n·f) or sin(n·f).

The frequency f is fitted in float64 and every row is compared with it. A table counts only where it is as near to the
true values as its dtype can be, so that computing the numbers again loses nothing. A table whose angles were rounded to
float32 before the cosine, at row 4000 off by 10⁻⁴, is compared with angles rounded alike, and computed so again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.rotary.reads import NotRotation, Read
from attnc.ir.graph import Graph
from attnc.ir.types import DType

Column = NDArray[np.float64]
TOLERANCE = {DType.F32: 2.0**-24, DType.C64: 2.0**-24, DType.F64: 1e-11, DType.C128: 1e-11}
"""Largest difference from the true value: half a unit in the last place of a number just below 1, twice that for
what the fit leaves; narrower dtypes would turn the exact angle into another one."""
COS, SIN, GIVEN = 1, 2, 3
"""What an element of a wave is; given ones are cosines or sines as a proof takes them."""
Fit = tuple[int, float, float, bool]
"""Kind, factor and frequency of a column, and whether its angles are float32 products."""
NEAR = 3
"""Neighbours of a float32 frequency that are tried on either side."""


class _Miss(NamedTuple):
    """The nearest frequency, and the largest difference it leaves."""

    error: float
    frequency: float


@dataclass
class Tables:
    """The tables of one graph; each column is fitted once."""

    graph: Graph
    fits: dict[tuple[str, tuple[int, ...], bool], Fit | str] = field(default_factory=dict)
    frequencies: tuple[list[float], list[float]] = field(default_factory=lambda: ([0.0], [0.0]))
    """Frequencies met so far, of exact and of rounded angles: the cosine and the sine of one must share a number."""
    factors: list[float] = field(default_factory=lambda: [1.0])
    learned: set[tuple[tuple[int, ...], int, bool]] = field(default_factory=set)
    """Shapes of tables whose sines have all been met."""

    def columns(self, read: Read, dim: int) -> dict[int, Fit]:
        """What the rows along ``dim`` of a constant hold for each lane.

        Exact angles are tried first, then angles that float32 has rounded; all lanes are of one sort. Raises
        NotRotation with what exact angles differ by.
        """
        lanes = list(map(int, read.chosen.nonzero()[0]))
        try:
            return {lane: self._column(read, dim, lane, rounded=False) for lane in lanes}
        except NotRotation as refused:
            try:
                return {lane: self._column(read, dim, lane, rounded=True) for lane in lanes}
            except NotRotation:
                raise refused from None

    def _column(self, read: Read, dim: int, lane: int, *, rounded: bool) -> Fit:
        assert read.value.op is not None
        name = str(read.value.op.attrs["name"])
        at = [read.number(part) for part in read.coords]
        place = tuple(-1 if n is None else int(n[lane]) for n in at)
        key = (name, place, rounded)
        if key not in self.fits:
            chosen = tuple(slice(None) if d == dim else index for d, index in enumerate(place))
            try:
                self.fits[key] = self._fit(_content(self.graph.constants.get(name), name), chosen, read, rounded)
            except NotRotation as refused:
                self.fits[key] = str(refused)
        found = self.fits[key]
        if isinstance(found, str):
            raise NotRotation(found)
        return found

    def _fit(self, table: Column, chosen: tuple[Any, ...], read: Read, rounded: bool) -> Fit:
        dtype, column = tensor_type(read.value).dtype, table[chosen]
        limit, name = TOLERANCE.get(dtype, 0.0), f"the table %{read.value.name}"
        if not limit or len(column) < 3 or not np.isfinite(column).all():
            raise NotRotation(f"{name} is of {dtype.value}, or too short")
        even = abs(column[0]) > limit
        if even:
            self._learn(table.shape, chosen.index(slice(None)), limit, rounded)
        found = self._search(column, even, limit, rounded)
        if not isinstance(found, _Miss):
            return found
        formula = f"{'cos' if even else 'sin'}(row · {found.frequency:.6g})"
        raise NotRotation(f"{name} differs from {formula} by {found.error:.2g}, more than {dtype.value} rounds")

    def _learn(self, shape: tuple[int, ...], dim: int, limit: float, rounded: bool) -> None:
        """Meet the frequencies of all sines in tables of this shape first: slow cosines can't be told apart."""
        if (shape, dim, rounded) in self.learned:
            return
        self.learned.add((shape, dim, rounded))
        for name, payload in self.graph.constants.items():
            if tuple(getattr(payload, "shape", ())) != shape[: getattr(payload, "ndim", 0)]:
                continue
            table = _content(payload, name)
            for column in np.moveaxis(table, dim, 0).reshape(table.shape[dim], -1).T:
                if abs(column[0]) <= limit and np.abs(column).max() <= 1 + limit:
                    self._search(column, False, limit, rounded)

    def _search(self, column: Column, even: bool, limit: float, rounded: bool) -> Fit | _Miss:
        """The first frequency within the limit, else the nearest one."""
        rows, known = np.arange(len(column), dtype=np.float64), self.frequencies[rounded]
        nearest = _Miss(math.inf, 0.0)
        for factor in [float(column[0])] if even else self.factors:
            wave = column / factor
            for frequency in (*known, *_candidates(wave, rows, even, rounded)):
                error = float(np.abs(wave - _wave(_angles(rows, frequency, rounded), even)).max())
                if error <= limit:
                    _remember(self.factors, factor)
                    _remember(known, frequency)
                    return COS if even else SIN, factor, frequency, rounded
                nearest = min(nearest, _Miss(error, frequency))
        return nearest


def _candidates(wave: Column, rows: Column, even: bool, rounded: bool) -> Iterator[float]:
    """Frequencies of least squares; of float32 where angles are rounded, with the neighbours."""
    for guess in _guesses(wave, even):
        frequency = _refined(wave, rows, guess, even)
        if not rounded:
            yield frequency
            continue
        nearest = np.float32(frequency)
        step = np.spacing(nearest)
        yield from (float(nearest + n * step) for n in sorted(range(-NEAR, NEAR + 1), key=abs))


def _angles(rows: Column, frequency: float, rounded: bool) -> Column:
    if not rounded:
        return rows * frequency
    return (rows.astype(np.float32) * np.float32(frequency)).astype(np.float64)


def _remember(known: list[float], number: float) -> None:
    if number not in known:
        known.append(number)


def rows_of(read: Read) -> int:
    """The one dimension of a table that doesn't run along features. Raises NotRotation where there are more."""
    dims = [d for d, part in enumerate(read.coords) if read.number(part) is None]
    if len(dims) != 1 or len(read.coords[dims[0]]) != 1:
        raise NotRotation(f"the constant %{read.value.name} is no table of rows")
    return dims[0]


def _content(payload: Any, name: str) -> Column:
    """A constant as float64; a complex one gets a last dimension for its parts. Raises NotRotation without content."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    if not isinstance(payload, torch.Tensor) or isinstance(payload, FakeTensor) or payload.is_meta:
        raise NotRotation(f"the content of the constant @{name} isn't known when compiling")
    plain = payload.detach().cpu().resolve_conj()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    content: Column = plain.to(torch.float64).numpy()
    return content


def _wave(angles: Column, even: bool) -> Column:
    return np.cos(angles) if even else np.sin(angles)


def _guesses(wave: Column, even: bool) -> list[float]:
    """Frequencies in [0, π] that explain the first row where the wave has clearly moved."""
    moved = np.flatnonzero(wave < 0.9) if even else np.flatnonzero(np.abs(wave) > 0.4)
    row = max(1, int(moved[0]) if len(moved) else len(wave) - 1)
    value = float(np.clip(wave[row], -1.0, 1.0))
    if even:
        return [math.acos(value) / row]
    return [math.asin(value) / row, (math.pi - math.asin(value)) / row]


def _refined(wave: Column, rows: Column, frequency: float, even: bool) -> float:
    """The frequency of least squares, by Newton steps over ever more rows: each step must stay within one period."""
    count = min(8, len(wave))
    while True:
        n = rows[:count]
        for _ in range(3):
            angles = n * frequency
            slope = -n * np.sin(angles) if even else n * np.cos(angles)
            norm = float(slope @ slope)
            frequency += float(slope @ (wave[:count] - _wave(angles, even))) / norm if norm else 0.0
        if count == len(wave):
            return frequency
        count = min(2 * count, len(wave))
