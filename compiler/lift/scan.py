"""Running sums and differences along one dimension."""

from __future__ import annotations

import operator
from collections.abc import Callable

import sympy

from attnc.compiler.lift.arithmetic import compute
from attnc.compiler.lift.convert import convert
from attnc.compiler.lift.element import Choice, Coords, Element, Refused, numeric, pairs, single
from attnc.compiler.lift.exact import fit
from attnc.compiler.lift.joining import joined
from attnc.compiler.lift.scope import Scope, dimension, integer, source, tensor
from attnc.compiler.lift.slicing import with_coordinate
from attnc.ir.types import DType
from attnc.ir.values import Op, Value

Rule = Callable[[Scope, Op, Coords], Element]


def cumsum(scope: Scope, op: Op, at: Coords) -> Element:
    """Σ_{j ≤ i} x[j] in closed form: of elements that don't depend on j, and of one comparison with j.

    Raises Refused for anything else, data included.
    """
    operand, dtype = source(op), tensor(op.result).dtype
    if dtype.is_float or not at:
        raise Refused("a running sum of floats")
    axis = dimension(op.arg(1, "dim"), len(at))
    inner, symbol = scope.with_axis(sympy.sympify(tensor(operand).shape[axis]))
    element = convert(inner, inner.at(operand, with_coordinate(at, axis, symbol)), tensor(operand).dtype, DType.I64)
    total = _total(scope, numeric(element), symbol, at[axis])
    return single(fit(scope.simplify(total), dtype, scope.bounds))


def _total(scope: Scope, element: Choice, symbol: sympy.Symbol, last: sympy.Expr) -> sympy.Expr:
    """Σ of the element for symbol = 0 … last."""
    leaves = [v for _, v in element.branches]
    if any(isinstance(v, float) or symbol in v.free_symbols for v in leaves):
        raise Refused("a running sum of numbers that differ")
    if len(leaves) == 1:
        return sympy.expand(leaves[0] * (last + 1))
    if len(leaves) > 2:
        raise Refused("a running sum of several cases")
    count = _count(scope, element.branches[0][0], symbol, last)
    return sympy.expand(leaves[1] * (last + 1) + (leaves[0] - leaves[1]) * count)


def _count(scope: Scope, condition: sympy.Basic, symbol: sympy.Symbol, last: sympy.Expr) -> sympy.Expr:
    """How many of symbol = 0 … last satisfy ``condition``. Raises Refused unless it orders symbol and a bound."""
    if symbol not in condition.free_symbols:
        raise Refused("a running sum of a condition on another position")
    if not isinstance(condition, sympy.Lt | sympy.Le | sympy.Gt | sympy.Ge):
        raise Refused("a running sum of a condition that is not an ordering")
    if isinstance(condition, sympy.Gt | sympy.Ge):
        condition = condition.reversed
    bound = sympy.expand(condition.rhs - condition.lhs + (0 if isinstance(condition, sympy.Lt) else 1))
    sign, rest = bound.coeff(symbol), sympy.expand(bound - bound.coeff(symbol) * symbol)
    if sign not in (1, -1) or symbol in rest.free_symbols:
        raise Refused("a running sum of a condition that is not an ordering of positions")
    # 0 < rest − j: the first `rest` positions; 0 < rest + j: all but the first `1 − rest`
    if sign == -1:
        return sympy.Max(0, sympy.Min(last + 1, rest))
    return sympy.Max(0, sympy.Min(last + 1, last + rest))


def diff(scope: Scope, op: Op, at: Coords) -> Element:
    """x[i + 1] − x[i] of the operand with ``prepend`` and ``append`` around it."""
    if integer(op.arg(1, "n", 1)) != 1:
        raise Refused("a difference of higher order")
    dtype = tensor(op.result).dtype
    if not dtype.is_int:
        raise Refused(f"a difference of {dtype.value}")
    axis = dimension(op.arg(2, "dim", -1), len(at))
    parts = [p for p in (op.arg(3, "prepend"), source(op), op.arg(4, "append")) if isinstance(p, Value)]
    here = joined(scope, parts, axis, dtype, at)
    after = joined(scope, parts, axis, dtype, with_coordinate(at, axis, at[axis] + 1))
    return pairs(lambda x, y: compute(scope, operator.sub, dtype, x, y), after, here)


RULES: dict[str, Rule] = {"aten.cumsum.default": cumsum, "aten.diff.default": diff}
