"""Constant tables of cosines and sines: a column is one where its whole content is cos(n·f) or sin(n·f).

The frequency f is fitted in float64 and every row is compared with it. A table counts only where it is as near to the
true values as its dtype can be, so that computing the numbers again loses nothing. (A table whose angles were rounded
to float32 before the cosine is not: at row 4000 it is off by 10⁻⁴.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

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
COS, SIN = 1, 2
Fit = tuple[int, float, float]
"""Kind, factor and frequency of a column."""


@dataclass
class Tables:
    """The tables of one graph; each column is fitted once."""

    graph: Graph
    fits: dict[tuple[str, tuple[int, ...]], Fit | str] = field(default_factory=dict)
    frequencies: list[float] = field(default_factory=lambda: [0.0])
    """Frequencies met so far: the cosine and the sine of one angle must share a number."""
    factors: list[float] = field(default_factory=lambda: [1.0])

    def column(self, read: Read, dim: int, lane: int) -> Fit:
        """What the rows along ``dim`` of a constant hold for one lane. Raises NotRotation."""
        assert read.value.op is not None
        name = str(read.value.op.attrs["name"])
        at = [read.number(part) for part in read.coords]
        place = tuple(-1 if n is None else int(n[lane]) for n in at)
        key = (name, place)
        if key not in self.fits:
            chosen = tuple(slice(None) if d == dim else index for d, index in enumerate(place))
            try:
                self.fits[key] = self._fit(_content(self.graph.constants.get(name), name)[chosen], read)
            except NotRotation as refused:
                self.fits[key] = str(refused)
        found = self.fits[key]
        if isinstance(found, str):
            raise NotRotation(found)
        return found

    def _fit(self, column: Column, read: Read) -> Fit:
        dtype, rows = tensor_type(read.value).dtype, np.arange(len(column), dtype=np.float64)
        limit, name = TOLERANCE.get(dtype, 0.0), f"the table %{read.value.name}"
        if not limit or len(column) < 3 or not np.isfinite(column).all():
            raise NotRotation(f"{name} is of {dtype.value}, or too short")
        even = abs(column[0]) > limit
        tried = []
        for factor in [float(column[0])] if even else self.factors:
            wave = column / factor
            for frequency in (
                *self.frequencies,
                *(_refined(wave, rows, guess, even) for guess in _guesses(wave, even)),
            ):
                error = float(np.abs(wave - _wave(rows * frequency, even)).max())
                if error <= limit:
                    _remember(self.factors, factor)
                    _remember(self.frequencies, frequency)
                    return COS if even else SIN, factor, frequency
                tried.append((error, frequency))
        error, frequency = min(tried)
        formula = f"{'cos' if even else 'sin'}(row · {frequency:.6g})"
        raise NotRotation(f"{name} differs from {formula} by {error:.2g}, more than {dtype.value} rounds")


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
