"""Reads: for each feature the one element of a tensor it comes from.

Feature dimensions have constant lengths, so features are enumerated: a *lane* is one feature of the value asked about,
and arrays over lanes say which index each lane reads. Every other dimension keeps its axis
(:mod:`attnc.compiler.fuse.axes`), whatever its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from attnc.compiler.fuse.axes import Axis, Coords, is_one, resolve
from attnc.compiler.fuse.layout import tensor_type
from attnc.ir.types import Dim
from attnc.ir.values import Arg, Value

Lanes = NDArray[np.int64]
"""An integer for each lane."""
Chosen = NDArray[np.bool_]
"""Which lanes are meant."""
Part = tuple[Axis, ...]
"""The coordinate along one dimension."""


class NotRotation(Exception):
    """The value does not rotate features, or that can't be shown; the text says what stood in the way."""


@dataclass(frozen=True)
class Cut:
    """A slice: ``length`` indices from ``start`` on, every ``step``; ``bounds`` are start and end as written."""

    start: Arg | Dim
    step: Arg
    length: Dim
    bounds: tuple[Arg, Arg] = field(compare=False)


@dataclass(eq=False)
class Window(Axis):
    """An index along a dimension that was sliced; ``part`` counts within the slice."""

    part: Part = ()
    cut: Cut = Cut(0, 1, 0, (0, None))


@dataclass(eq=False)
class Taken(Axis):
    """An index along a dimension that was gathered: the element of ``index`` at ``coords``."""

    index: Value | None = None
    at: Coords = ()


@dataclass(frozen=True, eq=False)
class Read:
    """One element of ``value`` for each lane in ``chosen``.

    ``numbers`` gives, for a feature axis, the index of each lane (anything at lanes not chosen). A complex value has
    one coordinate more than dimensions: 0 is its real, 1 its imaginary part.
    """

    value: Value
    coords: Coords
    chosen: Chosen
    numbers: Mapping[Axis, Lanes]

    def index(self, dim: int) -> Lanes | None:
        """The index along a dimension for each lane; None where it runs along an axis that is no feature."""
        return self.number(self.coords[dim])

    def number(self, part: Part) -> Lanes | None:
        """A coordinate as numbers; None where it has an axis that is no feature."""
        total = np.zeros(len(self.chosen), np.int64)
        for axis in part:
            found = self.numbers.get(axis)
            if found is None or not isinstance(axis.length, int):
                return None
            total = total * axis.length + found
        return total

    def component(self) -> Lanes:
        """0 for the real part of a complex value, 1 for the imaginary one."""
        found = self.number(self.coords[-1])
        assert found is not None  # a feature axis of length 2
        return found

    def flat(self) -> Lanes:
        """The row-major index into the whole tensor. Raises NotRotation where some dimension is no feature's."""
        total = np.zeros(len(self.chosen), np.int64)
        for part, length in zip(self.coords, tensor_type(self.value).shape, strict=True):
            index = self.number(part)
            if index is None or not isinstance(length, int):
                raise NotRotation(f"%{self.value.name} depends on more than the feature")
            total = total * length + index
        return total

    def fresh(self) -> Read:
        """The same read after other reads may have split an axis."""
        coords = resolve(self.coords)
        return self if coords == self.coords else self.moved(self.value, coords[: tensor_type(self.value).rank])

    def moved(self, value: Value, coords: Coords, chosen: Chosen | None = None) -> Read:
        """The same lanes, or ``chosen`` of them, read from another value; feature axes split meanwhile are renumbered.

        ``coords`` leave out the component of a complex value, which is carried along.
        """
        component = resolve(self.coords[tensor_type(self.value).rank :]) if tensor_type(value).dtype.is_complex else ()
        numbers = {leaf: n for axis, known in self.numbers.items() for leaf, n in _leaves(axis, known)}
        kept = self.chosen if chosen is None else chosen
        return Read(value, resolve(coords + component), kept, numbers)

    def renumbered(self, value: Value, coords: Coords, dim: int, index: Lanes, chosen: Chosen | None = None) -> Read:
        """:meth:`moved`, with the coordinate of one dimension (of ``coords``) replaced by numbers."""
        length = tensor_type(value).shape[dim]
        axis = Axis(length)
        numbered = Read(self.value, self.coords, self.chosen, {**self.numbers, axis: index})
        part = () if is_one(length) else (axis,)
        return numbered.moved(value, (*coords[:dim], part, *coords[dim + 1 :]), chosen)


def _leaves(axis: Axis, index: Lanes) -> list[tuple[Axis, Lanes]]:
    """The indices along the parts of a split axis."""
    if axis.parts is None:
        return [(axis, index)]
    outer, inner = axis.parts
    assert isinstance(inner.length, int)  # a part of a constant length
    return [*_leaves(outer, index // inner.length), *_leaves(inner, index % inner.length)]
