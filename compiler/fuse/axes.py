"""Axes: which index runs along which dimension, through any chain of views.

A dimension of a tensor is a row-major product of axes. A view that splits a dimension splits an axis in two; every
place that named the whole axis then names its parts. So layouts are compared by identity of axes, never by equal sizes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy

from attnc.ir.types import Dim

if TYPE_CHECKING:
    from attnc.ir.values import Op

WORDS = {
    "b": "batch axis",
    "h": "head or query axis",
    "k": "key axis",
    "d": "axis of Q's and K's features",
    "e": "axis of V's features",
}
"""What an axis is called, by its hint."""


@dataclass(eq=False)
class Axis:
    """One loop index of a given length. ``parts`` is set once the axis has been split (outer part first)."""

    length: Dim
    hint: str = ""
    atomic: bool = False
    """An atomic axis may not be split (query and key positions, contracted and value features)."""
    parts: tuple[Axis, Axis] | None = None

    def leaves(self) -> tuple[Axis, ...]:
        if self.parts is None:
            return (self,)
        outer, inner = self.parts
        return outer.leaves() + inner.leaves()

    def __str__(self) -> str:
        return f"{WORDS.get(self.hint, 'axis')} of length {self.length}"


Coords = tuple[tuple[Axis, ...], ...]
"""For each dimension its axes, outermost first; an empty tuple is index 0 (a dimension of length 1)."""


class LayoutError(Exception):
    """Two layouts do not line up: a view would have to split an axis unevenly, or one that must stay whole.

    ``op`` is the layout op or contraction it happened at, once that is known.
    """

    op: Op | None = None


def resolve(coords: Coords) -> Coords:
    """The same coordinates in terms of unsplit axes."""
    return tuple(tuple(leaf for axis in dim for leaf in axis.leaves()) for dim in coords)


def equal(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are provably the same length."""
    return bool(a == b) or sympy.expand(sympy.sympify(a) - sympy.sympify(b)) == 0


def is_one(length: Dim) -> bool:
    """Whether a dimension is provably of length 1."""
    return equal(length, 1)


def divide(a: Dim, b: Dim) -> Dim | None:
    """``a / b`` where that is provably an integer, else None."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    quotient = sympy.cancel(sympy.sympify(a) / sympy.sympify(b))
    if sympy.denom(sympy.together(quotient)) != 1 or quotient.is_integer is not True:
        return None
    return int(quotient) if quotient.is_Integer else quotient


def split(axis: Axis, outer: Dim) -> tuple[Axis, Axis]:
    """Split a leaf into an outer part of the given length and the rest. Raises LayoutError where it doesn't divide."""
    inner = divide(axis.length, outer)
    if inner is None or axis.atomic or axis.parts is not None:
        raise LayoutError(f"a view cuts the {axis}, into parts of {outer}")
    axis.parts = (Axis(outer, axis.hint), Axis(inner, axis.hint))
    return axis.parts


def regroup(axes: Iterable[Axis], shape: tuple[Dim, ...]) -> Coords:
    """Distribute a row-major run of axes over the dimensions of a view of the same elements, splitting where needed.

    Raises LayoutError where the lengths cannot be matched.
    """
    rest = [leaf for axis in axes for leaf in axis.leaves()]
    result: list[tuple[Axis, ...]] = []
    for length in shape:
        group: list[Axis] = []
        wanted: Dim = length
        while not is_one(wanted):
            if not rest:
                raise LayoutError(f"no axis left for a dimension of length {length}")
            axis = rest.pop(0)
            remaining = divide(wanted, axis.length)
            if remaining is None:
                axis, inner = split(axis, wanted)
                rest.insert(0, inner)
                remaining = 1
            group.append(axis)
            wanted = remaining
        result.append(tuple(group))
    if rest:
        raise LayoutError(f"a view to {shape} leaves out the {rest[0]}")
    return tuple(result)


def flatten(coords: Coords) -> tuple[Axis, ...]:
    """All axes of a value, row-major."""
    return tuple(axis for dim in coords for axis in dim)


def broadcast(coords: Coords, shape: tuple[Dim, ...]) -> Coords:
    """Coordinates of an operand of ``shape`` inside a result with ``coords``, by right-aligned broadcasting."""
    offset = len(coords) - len(shape)
    if offset < 0:
        raise LayoutError("an operand has more dimensions than the result it broadcasts to")
    return tuple(() if is_one(n) else coords[offset + i] for i, n in enumerate(shape))
