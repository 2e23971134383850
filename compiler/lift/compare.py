"""Comparisons."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import sympy
from sympy.logic.boolalg import Boolean

from attnc.compiler.lift.element import Coords, Element, Leaf, constant, each, pairs
from attnc.compiler.lift.promote import common_dtype, promoted
from attnc.compiler.lift.scope import Scope
from attnc.ir.values import Op

Rule = Callable[[Scope, Op, Coords], Element]

_PYTHON: dict[str, Callable[..., bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
_SYMBOLIC = {
    "lt": sympy.Lt,
    "le": sympy.Le,
    "gt": sympy.Gt,
    "ge": sympy.Ge,
    "eq": sympy.Eq,
    "ne": sympy.Ne,
}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def compare(scope: Scope, kind: str, a: Leaf, b: Leaf) -> Boolean:
    """``a <kind> b`` for kind ``lt``, ``le``, ``gt``, ``ge``, ``eq`` or ``ne``."""
    left, right = constant(a), constant(b)
    if left is not None and right is not None:
        return sympy.true if _PYTHON[kind](left, right) else sympy.false
    if isinstance(a, float):
        return compare(scope, _MIRRORED[kind], b, a)
    if isinstance(b, float):
        return _with_float(scope, kind, a, b)
    return _distributed(scope, kind, a, b)


def _with_float(scope: Scope, kind: str, a: sympy.Expr, b: float) -> Boolean:
    """An integer against a float: infinities decide, a fraction lies between two integers."""
    if math.isinf(b) or (not b.is_integer() and kind in ("eq", "ne")):
        return sympy.true if _PYTHON[kind](0, b) else sympy.false
    bound = math.floor(b) if kind in ("le", "gt") else math.ceil(b)
    return _distributed(scope, kind, a, sympy.Integer(bound))


def _distributed(scope: Scope, kind: str, a: sympy.Expr, b: sympy.Expr) -> Boolean:
    """max(x, y) <= b is x <= b and y <= b; so all orderings with min and max become affine ones."""
    if kind in ("eq", "ne"):
        return scope.simplify(_SYMBOLIC[kind](a, b))
    if isinstance(b, sympy.Min | sympy.Max) and not isinstance(a, sympy.Min | sympy.Max):
        return _distributed(scope, _MIRRORED[kind], b, a)
    if isinstance(a, sympy.Min | sympy.Max):
        every = isinstance(a, sympy.Max) == (kind in ("lt", "le"))
        parts = [_distributed(scope, kind, x, b) for x in a.args]
        return sympy.And(*parts) if every else sympy.Or(*parts)
    return scope.simplify(_SYMBOLIC[kind](a, b))


def _comparison(kind: str) -> Rule:
    def rule(scope: Scope, op: Op, at: Coords) -> Element:
        dtype = common_dtype(op.args[:2])
        left, right = (promoted(scope, a, at, dtype) for a in op.args[:2])
        return pairs(lambda x, y: compare(scope, kind, x, y), left, right)

    return rule


def infinite(scope: Scope, op: Op, at: Coords) -> Element:
    """Whether a constant is infinite; positions and data integers never are."""
    element = scope.operand(op.args[0], at)
    return each(lambda leaf: sympy.true if leaf in (math.inf, -math.inf) else sympy.false, element)


def not_a_number(scope: Scope, op: Op, at: Coords) -> Element:
    """Never true: an element with a formula is a number."""
    return each(lambda leaf: sympy.false, scope.operand(op.args[0], at))


RULES: dict[str, Rule] = {
    f"aten.{kind}.{overload}": _comparison(kind) for kind in _PYTHON for overload in ("Tensor", "Scalar")
} | {"aten.isinf.default": infinite, "aten.isnan.default": not_a_number}
