"""Leaves and constructors of index expressions.

An index expression is a sympy expression whose value is an integer or a truth value, over axis symbols
(:func:`axis`, ≥ 0), sizes (``ir.types.size``, ≥ 1) and :class:`Load` terms. Floats never enter: sympy reassociates.
"""

from __future__ import annotations

import math
from typing import Any

import sympy
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean


class Load(sympy.Function):  # type: ignore[misc]
    """``Load(Symbol(name), *indices)``: an element of the integer or boolean tensor ``name`` (a boolean is 0 or 1)."""

    is_integer = True

    @property
    def name(self) -> str:
        return str(self.args[0])

    @property
    def indices(self) -> tuple[sympy.Expr, ...]:
        return tuple(self.args[1:])

    @property
    def free_symbols(self) -> set[sympy.Symbol]:
        """Axes and sizes of the indices; the tensor's name is not a variable."""
        return set().union(*(i.free_symbols for i in self.indices)) if self.indices else set()


def axis(name: str) -> sympy.Symbol:
    """The symbol of an axis position: an integer ≥ 0. Equal names give equal symbols, distinct from sizes."""
    return sympy.Symbol(name, integer=True, nonnegative=True)


def load(name: str, *indices: sympy.Expr | int) -> sympy.Expr:
    """The element of tensor ``name`` at ``indices`` (one per dimension)."""
    return Load(sympy.Symbol(name), *indices)


def is_size(symbol: sympy.Symbol) -> bool:
    """True for a named size, False for an axis."""
    return bool(symbol.is_positive)


def is_boolean(expr: sympy.Basic) -> bool:
    """True where the expression is a truth value: a condition, or a Piecewise of conditions."""
    if isinstance(expr, sympy.Piecewise):
        return all(is_boolean(value) for value, _ in expr.args)
    return isinstance(expr, Boolean) and not isinstance(expr, sympy.Symbol)


def where(condition: Any, then: Any, otherwise: Any) -> sympy.Basic:
    """``then`` where ``condition`` holds, else ``otherwise``: and/or for conditions, one flat Piecewise for integers.

    Piecewise is built unevaluated: sympy's evaluation solves conditions over the reals, slowly.
    """
    condition, then, otherwise = (sympy.sympify(x) for x in (condition, then, otherwise))
    condition = split_cases(condition)
    if condition is sympy.true or then == otherwise:
        return then
    if condition is sympy.false:
        return otherwise
    if is_boolean(then) or is_boolean(otherwise):
        return sympy.Or(sympy.And(condition, then), sympy.And(sympy.Not(condition), otherwise))
    rest = otherwise.args if isinstance(otherwise, sympy.Piecewise) else ((otherwise, sympy.true),)
    return sympy.Piecewise((then, condition), *rest, evaluate=False)


def split_cases(condition: sympy.Basic, evaluate: bool = True) -> sympy.Basic:
    """The condition with each ``where`` inside comparisons turned into logic: p(where(c, a, b)) is c∧p(a) ∨ ¬c∧p(b).

    ``evaluate``: whether sympy may simplify the parts. Raises ValueError for a Piecewise without a last resort.
    """
    if not condition.has(sympy.Piecewise, sympy.ITE):
        return condition
    if isinstance(condition, Relational):
        case = next(e for e in sympy.postorder_traversal(condition) if isinstance(e, sympy.Piecewise))
        test, *values = _first_case(case)
        then, otherwise = (_replaced(condition, case, value, evaluate) for value in values)
    elif isinstance(condition, sympy.ITE):
        test, then, otherwise = condition.args
    else:
        return condition.func(*(split_cases(a, evaluate) for a in condition.args), evaluate=evaluate)
    test, then, otherwise = (split_cases(c, evaluate) for c in (test, then, otherwise))
    opposite = sympy.Not(test, evaluate=evaluate)
    both = (sympy.And(*pair, evaluate=evaluate) for pair in ((test, then), (opposite, otherwise)))
    return sympy.Or(*both, evaluate=evaluate)


def _first_case(case: sympy.Piecewise) -> tuple[sympy.Basic, sympy.Basic, sympy.Basic]:
    """Condition of the first branch, its value, and the rest."""
    (value, test), *rest = case.args
    if not rest or rest[-1][1] != sympy.true:
        raise ValueError(f"{case} has no value where no condition holds")
    return test, value, rest[0][0] if len(rest) == 1 else sympy.Piecewise(*rest, evaluate=False)


def _replaced(expr: sympy.Basic, old: sympy.Basic, new: sympy.Basic, evaluate: bool) -> sympy.Basic:
    """``expr`` with ``new`` for ``old``; comparisons and extremes are rebuilt unevaluated where asked."""
    if expr == old:
        return new
    if not expr.args or not expr.has(old):
        return expr
    args = (_replaced(a, old, new, evaluate) for a in expr.args)
    if isinstance(expr, Relational | sympy.Min | sympy.Max):
        return expr.func(*args, evaluate=evaluate)
    return expr.func(*args)


def ratio(value: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """Numerator and denominator of what is under a floor, both integer expressions: k/4 + 1/2 gives (k + 2, 4)."""
    terms = [term.as_coeff_Mul() for term in sympy.Add.make_args(value)]
    if any(f.is_Pow and not f.exp.is_positive for _, rest in terms for f in sympy.Mul.make_args(rest)):
        top, bottom = sympy.together(value).as_numer_denom()
        return sympy.expand(top), bottom
    bottom = sympy.Integer(math.lcm(*(int(c.q) for c, _ in terms)))
    return (value, bottom) if bottom == 1 else (sympy.Add(*(c * bottom * rest for c, rest in terms)), bottom)


def sides(relation: Relational) -> tuple[sympy.Expr, sympy.Expr]:
    """Both sides of a comparison, made whole where sympy left fractions (it turns ⌊k/4⌋ ≥ 1 into k/4 ≥ 1)."""
    lhs, rhs = relation.args
    (left, under_left), (right, under_right) = ratio(lhs), ratio(rhs)
    if under_left == under_right == 1 or not (under_left.is_Integer and under_right.is_Integer):
        return lhs, rhs
    factor = sympy.Integer(math.lcm(int(under_left), int(under_right)))
    return sympy.expand(left * (factor / under_left)), sympy.expand(right * (factor / under_right))


def loads(expr: sympy.Basic) -> tuple[Load, ...]:
    """The distinct loads in an expression, sorted by their text."""
    return tuple(sorted(expr.atoms(Load), key=str))


def axes_of(expr: sympy.Basic) -> set[str]:
    """Names of the axes an expression depends on, through load indices too."""
    return {s.name for s in expr.free_symbols if not is_size(s)}


def sizes_of(expr: sympy.Basic) -> set[str]:
    """Names of the sizes an expression depends on, through load indices too."""
    return {s.name for s in expr.free_symbols if is_size(s)}
