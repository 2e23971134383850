"""What a transfer function may ask: elements of operands, ranges of coordinates, proofs.

A scope fixes the range of every coordinate symbol. Elements are computed on demand and remembered per (value,
coordinates). Where an integer or boolean operand has no formula the scope answers with a load of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import sympy

from attnc.compiler.lift.element import Coords, Element, Refused, number, single
from attnc.compiler.lift.exact import Interval, interval
from attnc.compiler.lift.scalars import scalar
from attnc.ir.index import Ranges, axis, is_nonnegative, is_size, load, simplify
from attnc.ir.types import DType, ScalarType, TensorType, as_dim
from attnc.ir.values import Arg, Op, Value

if TYPE_CHECKING:
    from attnc.compiler.lift.lifter import Lifter

MAX_DEPTH = 64
"""Operands of operands followed; a residual stream would otherwise be walked to its start."""


@dataclass(eq=False)
class Scope:
    """Elements under one set of coordinate ranges.

    ``unsafe`` are symbols whose coordinates may lie outside a tensor because a branch that reads it isn't taken
    there; a load clamps them.
    """

    lifter: Lifter
    ranges: Ranges
    unsafe: frozenset[sympy.Symbol] = frozenset()
    memo: dict[tuple[Value, Coords], Element | str] = field(default_factory=dict, repr=False)
    children: dict[object, Scope] = field(default_factory=dict, repr=False)

    def at(self, value: Value, coords: Coords) -> Element:
        """The element of ``value`` at ``coords``: by formula, else, for an integer or boolean tensor, loaded.

        Raises Refused for a float tensor without a formula.
        """
        coords = self._normal(value, coords)
        try:
            return self.formula(value, coords)
        except Refused:
            if tensor(value).dtype.is_float:
                raise
            return self.load(value, coords)

    def formula(self, value: Value, coords: Coords) -> Element:
        """The element by formula only; a graph input is loaded. Raises Refused where there is none."""
        key = (value, self._normal(value, coords))
        if key not in self.memo:
            self.memo[key] = self.lifter.compute(self, *key)
        found = self.memo[key]
        if isinstance(found, str):
            raise Refused(found, located=True)
        return found

    def operand(self, arg: Arg, coords: Coords) -> Element:
        """The element of an operand broadcast to ``coords``; a number or host scalar is the same everywhere."""
        if not isinstance(arg, Value):
            if isinstance(arg, int | float):
                return number(arg)
            raise Refused(f"operand {arg!r}")
        if isinstance(arg.type, ScalarType):
            return single(self.scalar(arg))
        return self.at(arg, coords[len(coords) - tensor(arg).rank :])

    def load(self, value: Value, coords: Coords) -> Element:
        """One element of an integer or boolean tensor as data. Raises Refused for other dtypes."""
        type_ = tensor(value)
        if not (type_.dtype.is_int or type_.dtype is DType.B1):
            raise Refused(f"a load of {type_.dtype.value} data")
        indices = [self._clamped(c, sympy.sympify(n)) for c, n in zip(coords, type_.shape, strict=True)]
        self.lifter.loaded[value.name] = type_.dtype
        loaded = load(value.name, *indices)
        return sympy.Ne(loaded, 0) if type_.dtype is DType.B1 else single(loaded)

    def scalar(self, arg: Arg) -> sympy.Expr:
        """A host integer argument as an expression of sizes. Raises Refused where it isn't one."""
        return scalar(arg)

    def proves(self, expr: sympy.Expr) -> bool:
        """True where ``expr`` ≥ 0 is proved for all coordinates and sizes."""
        return is_nonnegative(expr, self.ranges)

    def simplify(self, expr: sympy.Basic) -> sympy.Basic:
        return simplify(expr, self.ranges)

    def bounds(self, expr: sympy.Basic) -> Interval:
        """Numeric bounds of an integer expression."""
        return interval(expr, self._intervals(expr), self.lifter.load_bounds)

    def guarded(self, coordinate: sympy.Expr) -> Scope:
        """A scope for a branch in which ``coordinate`` may be out of bounds."""
        unsafe = self.unsafe | coordinate.free_symbols
        return self._child(unsafe, lambda: Scope(self.lifter, self.ranges, unsafe))

    def with_axis(self, length: sympy.Expr) -> tuple[Scope, sympy.Symbol]:
        """A scope with one more coordinate symbol, 0 ≤ symbol < ``length``."""
        symbol = axis(f"_{len(self.ranges)}")
        ranges = {**self.ranges, symbol: (0, length - 1)}
        return self._child((symbol, length), lambda: Scope(self.lifter, ranges, self.unsafe)), symbol

    def _child(self, key: object, make: Callable[[], Scope]) -> Scope:
        if key not in self.children:
            self.children[key] = make()
        return self.children[key]

    def _normal(self, value: Value, coords: Coords) -> Coords:
        """Coordinates of dimensions of length 1 are 0."""
        shape = tensor(value).shape
        return tuple(sympy.Integer(0) if n == 1 else c for c, n in zip(coords, shape, strict=True))

    def _clamped(self, index: sympy.Expr, length: sympy.Expr) -> sympy.Expr:
        if not index.free_symbols & self.unsafe:
            return index
        if not self.proves(index):
            index = sympy.Max(index, 0)
        return index if self.proves(length - 1 - index) else sympy.Min(index, length - 1)

    def _intervals(self, expr: sympy.Basic) -> dict[sympy.Symbol, Interval]:
        found: dict[sympy.Symbol, Interval] = {}
        for symbol in expr.free_symbols:
            if is_size(symbol):
                found[symbol] = self.lifter.size_bounds(symbol)
                continue
            low, high = (sympy.sympify(b) if b is not None else None for b in self.ranges.get(symbol, (0, None)))
            found[symbol] = (
                -math.inf if low is None else self.bounds(low)[0],
                math.inf if high is None else self.bounds(high)[1],
            )
        return found


def tensor(value: Value) -> TensorType:
    """The tensor type of a value. Raises Refused for anything else."""
    if not isinstance(value.type, TensorType):
        raise Refused(f"%{value.name} is not a tensor")
    return value.type


def source(op: Op, position: int = 0, keyword: str = "self") -> Value:
    """A tensor operand. Raises Refused where the argument is not a tensor."""
    arg = op.arg(position, keyword)
    if not isinstance(arg, Value):
        raise Refused(f"argument {keyword} is not a tensor")
    tensor(arg)
    return arg


def integer(arg: Arg) -> int:
    """A literal integer argument. Raises Refused for anything else."""
    if isinstance(arg, Value):
        arg = as_dim(scalar(arg))  # a host integer may be known
    if not isinstance(arg, int):
        raise Refused(f"{arg!r} is not a literal integer")
    return int(arg)


def dimension(arg: Arg, rank: int) -> int:
    """A dimension argument counted from the front."""
    return integer(arg) % max(rank, 1)
