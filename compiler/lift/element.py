"""Elements of lifted tensors: a truth value, or a choice among few exact numbers.

An integer or float element is a decision list ``((c1, v1), …, (true, vn))``: the first condition that holds selects
the value. Values are integer index expressions, or python floats where a constant isn't a small integer (``finfo.min``,
``inf``). Zeros carry no sign. Pointwise operations distribute over the list: ``(1 - m) * finfo.min`` folds by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import sympy
from sympy.logic.boolalg import Boolean

from attnc.ir.index import where

Leaf: TypeAlias = sympy.Expr | float
MAX_BRANCHES = 8
EXACT_INTEGER = 2**53
"""Every integer of at most this magnitude is a float64."""


class Refused(Exception):
    """This value has no exact formula here; the text says why, ``located`` that it names the operator too."""

    def __init__(self, text: str, located: bool = False) -> None:
        super().__init__(text)
        self.located = located


@dataclass(frozen=True)
class Choice:
    """A decision list of numbers; the last condition is true."""

    branches: tuple[tuple[Boolean, Leaf], ...]


Element: TypeAlias = Boolean | Choice
Coords: TypeAlias = tuple[sympy.Expr, ...]


def single(leaf: Leaf | int) -> Choice:
    """The element that is ``leaf`` everywhere."""
    return Choice(((sympy.true, leaf if isinstance(leaf, float) else sympy.sympify(leaf)),))


def number(value: float) -> Choice:
    """A constant. Raises Refused for NaN."""
    return single(as_leaf(value))


def as_leaf(value: float) -> Leaf:
    """A python number as a leaf: an integer where it is one and not huge. Raises Refused for NaN."""
    if isinstance(value, int):
        return sympy.Integer(int(value))
    if math.isnan(value):
        raise Refused("the constant is NaN")
    if value.is_integer() and abs(value) <= EXACT_INTEGER:
        return sympy.Integer(int(value))
    return value


def constant(leaf: Leaf) -> float | int | None:
    """The python number a leaf is, None where it depends on coordinates, sizes or data."""
    if isinstance(leaf, float):
        return leaf
    return int(leaf) if leaf.is_Integer else None


def pick(condition: Boolean, then: Element, otherwise: Element) -> Element:
    """``then`` where ``condition`` holds, else ``otherwise``. Raises Refused past MAX_BRANCHES."""
    if condition is sympy.true or then == otherwise:
        return then
    if condition is sympy.false:
        return otherwise
    if isinstance(then, Choice) and isinstance(otherwise, Choice):
        inner = _given(then, condition)
        chosen = tuple((sympy.And(condition, c), v) for c, v in inner.branches)
        return merged(chosen + _given(otherwise, sympy.Not(condition)).branches)
    if isinstance(then, Choice) or isinstance(otherwise, Choice):
        raise Refused("a choice between a number and a truth value")
    return where(condition, then, otherwise)


def merged(branches: tuple[tuple[Boolean, Leaf], ...]) -> Choice:
    """A choice without dead branches, equal neighbours joined."""
    kept: list[tuple[Boolean, Leaf]] = []
    for condition, leaf in branches:
        if condition is sympy.false:
            continue
        if kept and same(kept[-1][1], leaf):
            kept[-1] = (sympy.Or(kept[-1][0], condition), leaf)
        else:
            kept.append((condition, leaf))
        if kept[-1][0] is sympy.true:
            break
    if len(kept) > MAX_BRANCHES:
        raise Refused(f"more than {MAX_BRANCHES} cases")
    return Choice(tuple(kept))


def same(a: Leaf, b: Leaf) -> bool:
    """Equal as written: a float never equals an expression."""
    return isinstance(a, float) == isinstance(b, float) and bool(a == b)


def _given(element: Choice, fact: Boolean) -> Choice:
    """The choice where ``fact`` is known to hold."""
    known = {fact: sympy.true, sympy.Not(fact): sympy.false}
    return merged(tuple((known.get(c, c), v) for c, v in element.branches))


def each(function: Callable[[Leaf], Element], element: Element) -> Element:
    """``function`` applied to every value of a choice."""
    branches = numeric(element).branches
    result = function(branches[-1][1])
    for condition, leaf in reversed(branches[:-1]):
        result = pick(condition, function(leaf), result)
    return result


def pairs(function: Callable[[Leaf, Leaf], Element], a: Element, b: Element) -> Element:
    """``function`` applied to every pair of values of two choices."""
    left, right = numeric(a), numeric(b)
    if len(left.branches) * len(right.branches) > 2 * MAX_BRANCHES:
        raise Refused(f"{len(left.branches)} × {len(right.branches)} cases")
    if left.branches == right.branches:
        return each(lambda x: function(x, x), left)
    return each(lambda x: each(lambda y: function(x, y), right), left)


def numeric(element: Element) -> Choice:
    """The element as numbers: true counts 1, false 0."""
    if isinstance(element, Choice):
        return element
    chosen = pick(element, single(1), single(0))
    assert isinstance(chosen, Choice)
    return chosen


def truth(element: Element) -> Boolean:
    """The element as a truth value. Raises Refused for a number (a cast to bool compares with 0 first)."""
    if isinstance(element, Choice):
        raise Refused("a number where a truth value is needed")
    return element


def as_expr(element: Element) -> sympy.Expr:
    """A numeric element as one integer expression. Raises Refused where a value is not an integer."""
    branches = numeric(element).branches
    if any(isinstance(v, float) for _, v in branches):
        raise Refused("a value is not an integer")
    result = branches[-1][1]
    for condition, leaf in reversed(branches[:-1]):
        result = where(condition, leaf, result)
    return result


def as_cases(element: Element) -> tuple[tuple[Boolean, float], ...]:
    """A numeric element as constants by case. Raises Refused where a value is not a constant."""
    cases = []
    for condition, leaf in numeric(element).branches:
        value = constant(leaf)
        if value is None:
            raise Refused("a value is not a constant")
        cases.append((condition, float(value)))
    return tuple(cases)
