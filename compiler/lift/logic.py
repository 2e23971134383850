"""Truth values: logical and bitwise operators, where, masked_fill."""

from __future__ import annotations

import operator
from collections.abc import Callable

import sympy

from attnc.compiler.lift.convert import convert
from attnc.compiler.lift.creation import fill
from attnc.compiler.lift.element import Coords, Element, Leaf, Refused, constant, each, pairs, pick, single, truth
from attnc.compiler.lift.promote import dtype_of, promoted
from attnc.compiler.lift.scope import Scope, source, tensor
from attnc.ir.types import DType
from attnc.ir.values import Arg, Op

Rule = Callable[[Scope, Op, Coords], Element]


def condition(scope: Scope, arg: Arg, at: Coords) -> sympy.Basic:
    """An operand as a truth value: anything but 0 is true."""
    return truth(convert(scope, scope.operand(arg, at), dtype_of(arg), DType.B1))


def _logical(function: Callable[..., sympy.Basic]) -> Rule:
    """A rule for a function of truth values; ``logical_not`` has one operand, the others two."""
    return lambda scope, op, at: function(*(condition(scope, a, at) for a in op.args))


def _different(a: sympy.Basic, b: sympy.Basic) -> sympy.Basic:
    """Exclusive or, without sympy's Xor, which later stages don't know."""
    return pick(a, sympy.Not(b), b)


def _bitwise(function: Callable[..., sympy.Basic], on_integers: Callable[..., int]) -> Rule:
    """A rule that is ``function`` on booleans, and on integers works on constants only."""

    def leaf(*leaves: Leaf) -> Element:
        values = [constant(v) for v in leaves]
        if not all(isinstance(v, int) for v in values):
            raise Refused("bits of a position")
        return single(on_integers(*values))

    def rule(scope: Scope, op: Op, at: Coords) -> Element:
        dtype = tensor(op.result).dtype
        operands = [promoted(scope, a, at, dtype) for a in op.args]
        if dtype is DType.B1:
            return function(*(truth(o) for o in operands))
        return each(leaf, operands[0]) if len(operands) == 1 else pairs(leaf, operands[0], operands[1])

    return rule


def where(scope: Scope, op: Op, at: Coords) -> Element:
    """The second operand where the first is true, else the third, in the result's dtype."""
    dtype = tensor(op.result).dtype
    then, otherwise = (convert(scope, scope.operand(a, at), dtype_of(a), dtype) for a in op.args[1:3])
    return pick(condition(scope, op.args[0], at), then, otherwise)


def masked_fill(scope: Scope, op: Op, at: Coords) -> Element:
    """A number where the mask is true, else the operand."""
    operand = source(op)
    value = fill(scope, op.arg(2, "value"), tensor(op.result).dtype)
    return pick(condition(scope, op.arg(1, "mask"), at), value, scope.operand(operand, at))


_AND, _OR = _bitwise(sympy.And, operator.and_), _bitwise(sympy.Or, operator.or_)
_XOR = _bitwise(_different, operator.xor)

RULES: dict[str, Rule] = {
    "aten.logical_and.default": _logical(sympy.And),
    "aten.logical_or.default": _logical(sympy.Or),
    "aten.logical_xor.default": _logical(_different),
    "aten.logical_not.default": _logical(sympy.Not),
    "aten.bitwise_not.default": _bitwise(sympy.Not, operator.invert),
    **{
        f"aten.{name}.{overload}": rule
        for names, rule in (
            (("bitwise_and", "__and__"), _AND),
            (("bitwise_or", "__or__"), _OR),
            (("bitwise_xor", "__xor__"), _XOR),
        )
        for name in names
        for overload in ("Tensor", "Scalar")
    },
    **{f"aten.where.{overload}": where for overload in ("self", "ScalarSelf", "ScalarOther", "Scalar")},
    "aten.masked_fill.Scalar": masked_fill,
    "aten.masked_fill.Tensor": masked_fill,
}
