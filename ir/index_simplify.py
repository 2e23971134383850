"""Simplification of index expressions from ranges of their symbols.

Everything is decided by one question, "is this integer expression ≥ 0?", answered by replacing symbols by the bound
that makes the expression smallest. Bounds may be symbolic: k ≤ S − 1 proves k < S for every S.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import sympy
from sympy.core.relational import Relational

from attnc.ir.index_terms import is_size, ratio, sides, split_cases, where

Bound: TypeAlias = sympy.Expr | int | None
Ranges: TypeAlias = Mapping[sympy.Symbol, tuple[Bound, Bound]]
"""Inclusive bounds; None is unbounded. Axes are ≥ 0 and sizes ≥ 1 without being listed."""

MAX_STEPS = 24
"""Replacements tried in one proof; formulas of masks take fewer than ten."""


def simplify(expr: sympy.Basic, ranges: Ranges) -> sympy.Basic:
    """An expression equal to ``expr`` for all values in ``ranges``: comparisons decided, floor, Mod, Min, Max and
    Piecewise folded, implied conjuncts dropped.
    """
    return _Simplifier(ranges).visit(sympy.sympify(expr))


def is_nonnegative(expr: sympy.Expr, ranges: Ranges, steps: int = MAX_STEPS) -> bool:
    """True where ``expr`` ≥ 0 is proved for all values in ``ranges``; False says nothing."""
    expr = sympy.expand(expr)
    if expr.is_nonnegative is not None:
        return bool(expr.is_nonnegative)
    if steps == 0:
        return False
    for term in _replaceable(expr):
        coefficient = expr.coeff(term)
        rest = sympy.expand(expr - coefficient * term)
        if rest.has(term) or coefficient.has(term):
            continue
        up = True if coefficient.is_nonnegative else False if coefficient.is_nonpositive else None
        if up is None:
            continue
        choices, every = _bounds(term, up, ranges)
        proofs = (is_nonnegative(rest + coefficient * c, ranges, steps - 1) for c in choices)
        if choices:
            return all(proofs) if every else any(proofs)
    return False


def _replaceable(expr: sympy.Expr) -> Iterator[sympy.Expr]:
    """Terms to replace by a bound: compound terms, then axes, then sizes (bounds of the former mention the latter)."""
    kinds = sympy.floor | sympy.Mod | sympy.Min | sympy.Max | sympy.Piecewise
    found = [f for t in sympy.Add.make_args(expr) for f in sympy.Mul.make_args(t)]
    yield from dict.fromkeys(f for f in found if isinstance(f, kinds))
    symbols = dict.fromkeys(f for f in found if isinstance(f, sympy.Symbol))
    yield from sorted(symbols, key=lambda s: (is_size(s), s.name))


def _bounds(term: sympy.Expr, lower: bool, ranges: Ranges) -> tuple[list[sympy.Expr], bool]:
    """Expressions that bound ``term`` from the asked side, and whether all of them (True) or any is to be proved."""
    if isinstance(term, sympy.Symbol):
        given = ranges.get(term, (None, None))[0 if lower else 1]
        if given is None and lower:
            given = 1 if is_size(term) else 0
        return ([] if given is None else [sympy.sympify(given)]), True
    if isinstance(term, sympy.Piecewise):
        return [value for value, _ in term.args], True
    if isinstance(term, sympy.Min | sympy.Max):
        return list(term.args), isinstance(term, sympy.Min) == lower
    if isinstance(term, sympy.Mod):
        divisor = term.args[1]
        if not is_nonnegative(divisor - 1, ranges, 4):
            return [], True
        return [sympy.Integer(0) if lower else divisor - 1], True
    inside = term.args[0]
    top, bottom = ratio(inside)
    if not bottom.is_Integer:
        return [], True
    return [sympy.expand((top - bottom + 1) / bottom) if lower else inside], True


class _Simplifier:
    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.memo: dict[sympy.Basic, sympy.Basic] = {}

    def visit(self, expr: sympy.Basic) -> sympy.Basic:
        if not expr.args:
            return expr
        if expr not in self.memo:
            self.memo[expr] = self._visit(expr)
        return self.memo[expr]

    def _visit(self, expr: sympy.Basic) -> sympy.Basic:
        if isinstance(expr, sympy.Piecewise):
            result = self.visit(expr.args[-1][0])
            for value, condition in reversed(expr.args[:-1]):
                result = where(self.visit(condition), self.visit(value), result)
            return result
        if isinstance(expr, sympy.ITE):
            return self.visit(split_cases(expr))
        args = tuple(self.visit(a) for a in expr.args)
        if args != expr.args:
            expr = expr.func(*args)
        if isinstance(expr, Relational):
            cleared = expr.func(*sides(expr))
            return self._relation(cleared) if isinstance(cleared, Relational) else cleared
        if isinstance(expr, sympy.floor):
            return self._floor(expr)
        if isinstance(expr, sympy.Mod):
            return self._mod(expr)
        if isinstance(expr, sympy.Min | sympy.Max):
            return self._extreme(expr)
        if isinstance(expr, sympy.And | sympy.Or):
            return self._drop_implied(expr)
        return expr

    def proves(self, expr: sympy.Expr) -> bool:
        return is_nonnegative(expr, self.ranges)

    def _relation(self, expr: Relational) -> sympy.Basic:
        room = gap(expr)
        if room is not None:
            return sympy.true if self.proves(room) else sympy.false if self.proves(-room - 1) else expr
        difference = sympy.expand(expr.lhs - expr.rhs)
        same = difference == 0 or (self.proves(difference) and self.proves(-difference))
        apart = self.proves(difference - 1) or self.proves(-difference - 1)
        if not same and not apart:
            return expr
        return sympy.true if same == isinstance(expr, sympy.Equality) else sympy.false

    def _floor(self, expr: sympy.Basic) -> sympy.Basic:
        top, bottom = ratio(expr.args[0])
        whole, rest = _split(sympy.expand(top), bottom)
        if self.proves(rest) and self.proves(bottom - 1 - rest):
            return whole
        return whole + sympy.floor(rest / bottom)

    def _mod(self, expr: sympy.Basic) -> sympy.Basic:
        top, bottom = expr.args
        _, rest = _split(sympy.expand(top), bottom)
        if self.proves(rest) and self.proves(bottom - 1 - rest):
            return rest
        return sympy.Mod(rest, bottom)

    def _extreme(self, expr: sympy.Basic) -> sympy.Basic:
        sign = 1 if isinstance(expr, sympy.Min) else -1
        kept: list[sympy.Expr] = []
        for item in expr.args:
            if any(self.proves(sign * (item - other)) for other in kept):
                continue
            kept = [o for o in kept if not self.proves(sign * (o - item))] + [item]
        return expr.func(*kept)

    def _drop_implied(self, expr: sympy.Basic) -> sympy.Basic:
        """In an And, drop a comparison that another one implies; in an Or, one that implies another."""
        rooms = {a: r for a in expr.args if isinstance(a, Relational) and (r := gap(a)) is not None}
        sign = 1 if isinstance(expr, sympy.And) else -1
        kept = list(expr.args)
        for item, room in rooms.items():
            others = [o for o in kept if o in rooms and o != item]
            if any(self.proves(sign * (room - rooms[o])) for o in others):
                kept.remove(item)
        return expr.func(*kept)


def gap(expr: Relational) -> sympy.Expr | None:
    """The integer that is ≥ 0 exactly where the inequality holds; None for == and !=."""
    if isinstance(expr, sympy.LessThan | sympy.StrictLessThan):
        return expr.rhs - expr.lhs - (1 if isinstance(expr, sympy.StrictLessThan) else 0)
    if isinstance(expr, sympy.GreaterThan | sympy.StrictGreaterThan):
        return expr.lhs - expr.rhs - (1 if isinstance(expr, sympy.StrictGreaterThan) else 0)
    return None


def _split(top: sympy.Expr, bottom: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """``top`` = whole·bottom + rest, with the terms that ``bottom`` divides in ``whole``."""
    whole, rest = sympy.Integer(0), sympy.Integer(0)
    for term in sympy.Add.make_args(top):
        quotient = sympy.cancel(term / bottom) if not bottom.is_Integer else term / bottom
        if quotient.is_integer:
            whole += quotient
        else:
            rest += term
    return whole, rest
