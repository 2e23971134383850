"""Quotients and remainders: rounding down, toward zero, and, between constants, exact."""

from __future__ import annotations

import operator
from collections.abc import Callable

import sympy

from attnc.compiler.lift.arithmetic import binary
from attnc.compiler.lift.compare import compare
from attnc.compiler.lift.element import Coords, Element, Leaf, Refused, constant, pairs, pick, single
from attnc.compiler.lift.promote import promoted
from attnc.compiler.lift.scope import Scope, tensor
from attnc.ir.values import Op

Rule = Callable[[Scope, Op, Coords], Element]
Divide = Callable[[Scope, sympy.Expr, sympy.Expr], Element]


def quotient_down(scope: Scope, a: sympy.Expr, b: sympy.Expr) -> Element:
    """⌊a / b⌋; a negative divisor changes both signs."""
    a, b, _ = _positive(scope, a, b)
    return single(scope.simplify(sympy.floor(a / b)))


def quotient_to_zero(scope: Scope, a: sympy.Expr, b: sympy.Expr) -> Element:
    """a / b without its fraction: −⌊−a / b⌋ for negative a and positive b."""
    a, b, _ = _positive(scope, a, b)
    below = scope.simplify(-sympy.floor(-a / b))
    return pick(_negative(scope, a), single(below), single(scope.simplify(sympy.floor(a / b))))


def remainder_down(scope: Scope, a: sympy.Expr, b: sympy.Expr) -> Element:
    """a − b·⌊a / b⌋, with the sign of b."""
    a, b, sign = _positive(scope, a, b)
    return single(scope.simplify(sign * sympy.Mod(a, b)))


def remainder_to_zero(scope: Scope, a: sympy.Expr, b: sympy.Expr) -> Element:
    """The remainder with the sign of a; the sign of b doesn't matter."""
    a, b, sign = _positive(scope, a, b)
    a = sign * a
    below = scope.simplify(-sympy.Mod(-a, b))
    return pick(_negative(scope, a), single(below), single(scope.simplify(sympy.Mod(a, b))))


def _positive(scope: Scope, a: sympy.Expr, b: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr, int]:
    """Operands with a divisor > 0, and the sign taken out. Raises Refused where the divisor may be 0."""
    if scope.proves(b - 1):
        return a, b, 1
    if scope.proves(-b - 1):
        return -a, -b, -1
    raise Refused(f"the divisor {b} may be 0")


def _negative(scope: Scope, a: sympy.Expr) -> sympy.Basic:
    return compare(scope, "lt", a, sympy.Integer(0))


def _integers(function: Divide) -> Callable[[Scope, Op, Coords], Element]:
    """A rule that divides integers with ``function``. Raises Refused for floats."""

    def rule(scope: Scope, op: Op, at: Coords) -> Element:
        dtype = tensor(op.result).dtype
        if not dtype.is_int:
            raise Refused(f"rounded division of {dtype.value}")

        def leaf(x: Leaf, y: Leaf) -> Element:
            if isinstance(x, float) or isinstance(y, float):
                raise Refused("rounded division of a float")
            return function(scope, x, y)

        left, right = (promoted(scope, a, at, dtype) for a in op.args[:2])
        return pairs(leaf, left, right)

    return rule


_ROUNDED = {"floor": _integers(quotient_down), "trunc": _integers(quotient_to_zero)}


def divide(scope: Scope, op: Op, at: Coords) -> Element:
    """A quotient with ``rounding_mode``; without one, of constants by constants that are not 0."""
    mode = op.kwargs.get("rounding_mode")
    if isinstance(mode, str):
        return _ROUNDED[mode](scope, op, at)
    return binary(scope, _true_division, tensor(op.result).dtype, op.args[0], op.args[1], at)


def _true_division(a: Leaf, b: Leaf) -> float:
    if constant(b) in (0, 0.0, None) or isinstance(a, sympy.Expr):
        raise Refused("a quotient that is not of constants")
    return float(operator.truediv(a, b))


RULES: dict[str, Rule] = {
    "aten.floor_divide.default": _ROUNDED["floor"],
    "aten.floor_divide.Scalar": _ROUNDED["floor"],
    "aten.div.Tensor": divide,
    "aten.div.Scalar": divide,
    "aten.div.Tensor_mode": divide,
    "aten.div.Scalar_mode": divide,
    "aten.remainder.Tensor": _integers(remainder_down),
    "aten.remainder.Scalar": _integers(remainder_down),
    "aten.fmod.Tensor": _integers(remainder_to_zero),
    "aten.fmod.Scalar": _integers(remainder_to_zero),
}
