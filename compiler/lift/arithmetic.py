"""Sums, products, quotients, extremes: exact on integers, rounded as the dtype rounds on float constants."""

from __future__ import annotations

import operator
from collections.abc import Callable

import sympy

from attnc.compiler.lift.compare import compare
from attnc.compiler.lift.convert import nonzero
from attnc.compiler.lift.element import (
    Coords,
    Element,
    Leaf,
    Refused,
    as_leaf,
    constant,
    each,
    pairs,
    pick,
    single,
    truth,
)
from attnc.compiler.lift.exact import fit, round_to
from attnc.compiler.lift.promote import promoted
from attnc.compiler.lift.scope import Scope, tensor
from attnc.ir.types import DType
from attnc.ir.values import Arg, Op

Rule = Callable[[Scope, Op, Coords], Element]


def compute(scope: Scope, function: Callable[..., sympy.Expr], dtype: DType, *leaves: Leaf) -> Element:
    """``function`` of numbers in ``dtype``. Raises Refused where the result may not be exact."""
    values = [constant(leaf) for leaf in leaves]
    if dtype.is_float and all(v is not None for v in values):
        return single(as_leaf(round_to(function(*(float(v) for v in values if v is not None)), dtype)))
    if any(isinstance(leaf, float) for leaf in leaves):
        raise Refused("a float constant meets a position")
    return single(fit(scope.simplify(sympy.expand(function(*leaves))), dtype, scope.bounds))


def binary(scope: Scope, function: Callable[..., sympy.Expr], dtype: DType, a: Arg, b: Arg, at: Coords) -> Element:
    """A pointwise function of two broadcast operands, computed in ``dtype``."""
    left, right = promoted(scope, a, at, dtype), promoted(scope, b, at, dtype)
    return pairs(lambda x, y: compute(scope, function, dtype, x, y), left, right)


def _plain(function: Callable[..., sympy.Expr], logical: Callable[..., sympy.Basic] | None = None) -> Rule:
    """A rule for ``function(self, alpha·other)``; ``logical`` is its meaning on booleans."""

    def rule(scope: Scope, op: Op, at: Coords) -> Element:
        dtype, (a, b) = tensor(op.result).dtype, op.args[:2]
        if op.name.startswith("aten.rsub"):
            a, b = b, a
        if op.arg(2, "alpha", 1) != 1:
            raise Refused("alpha is not 1")
        if dtype is not DType.B1:
            return binary(scope, function, dtype, a, b, at)
        if logical is None:
            raise Refused("arithmetic on booleans")
        return logical(*(truth(promoted(scope, x, at, dtype)) for x in (a, b)))

    return rule


def _unary(function: Callable[[Scope, Leaf, DType], Element]) -> Rule:
    def rule(scope: Scope, op: Op, at: Coords) -> Element:
        dtype = tensor(op.result).dtype
        return each(lambda leaf: function(scope, leaf, dtype), promoted(scope, op.args[0], at, dtype))

    return rule


def negative(scope: Scope, leaf: Leaf, dtype: DType) -> Element:
    """−x."""
    return compute(scope, operator.neg, dtype, leaf)


def magnitude(scope: Scope, leaf: Leaf, dtype: DType) -> Element:
    """|x| as max(x, −x), which stays piecewise affine."""
    if constant(leaf) is not None:
        return compute(scope, abs, dtype, leaf)
    return single(fit(scope.simplify(sympy.Max(leaf, -leaf)), dtype, scope.bounds))


def sign(scope: Scope, leaf: Leaf, dtype: DType) -> Element:
    """−1, 0 or 1."""
    below = compare(scope, "lt", leaf, sympy.Integer(0))
    return pick(below, single(-1), pick(truth(nonzero(scope, leaf)), single(1), single(0)))


def largest(scope: Scope, dtype: DType, *leaves: Leaf) -> Element:
    """The greatest of several numbers."""
    return compute(scope, max if all(constant(v) is not None for v in leaves) else sympy.Max, dtype, *leaves)


def smallest(scope: Scope, dtype: DType, *leaves: Leaf) -> Element:
    """The least of several numbers."""
    return compute(scope, min if all(constant(v) is not None for v in leaves) else sympy.Min, dtype, *leaves)


def clamp(scope: Scope, op: Op, at: Coords) -> Element:
    """min(max(x, low), high), either bound optional."""
    dtype = tensor(op.result).dtype
    low = op.arg(1, "min") if "clamp_max" not in op.name else None
    high = op.arg(2, "max") if "clamp_max" not in op.name else op.arg(1, "max")
    element = promoted(scope, op.args[0], at, dtype)
    if low is not None:
        element = pairs(lambda x, y: largest(scope, dtype, x, y), element, promoted(scope, low, at, dtype))
    if high is not None:
        element = pairs(lambda x, y: smallest(scope, dtype, x, y), element, promoted(scope, high, at, dtype))
    return element


def _extreme(function: Callable[..., Element]) -> Rule:
    def rule(scope: Scope, op: Op, at: Coords) -> Element:
        dtype = tensor(op.result).dtype
        left, right = (promoted(scope, a, at, dtype) for a in op.args[:2])
        return pairs(lambda x, y: function(scope, dtype, x, y), left, right)

    return rule


_SUM, _DIFFERENCE = _plain(operator.add, sympy.Or), _plain(operator.sub)
_PRODUCT = _plain(operator.mul, sympy.And)

RULES: dict[str, Rule] = {
    "aten.add.Tensor": _SUM,
    "aten.add.Scalar": _SUM,
    "aten.sub.Tensor": _DIFFERENCE,
    "aten.sub.Scalar": _DIFFERENCE,
    "aten.rsub.Tensor": _DIFFERENCE,
    "aten.rsub.Scalar": _DIFFERENCE,
    "aten.mul.Tensor": _PRODUCT,
    "aten.mul.Scalar": _PRODUCT,
    "aten.neg.default": _unary(negative),
    "aten.abs.default": _unary(magnitude),
    "aten.sign.default": _unary(sign),
    "aten.minimum.default": _extreme(smallest),
    "aten.maximum.default": _extreme(largest),
    "aten.min.other": _extreme(smallest),
    "aten.max.other": _extreme(largest),
    "aten.clamp.default": clamp,
    "aten.clamp.Tensor": clamp,
    "aten.clamp_min.default": clamp,
    "aten.clamp_min.Tensor": clamp,
    "aten.clamp_max.default": clamp,
    "aten.clamp_max.Tensor": clamp,
}
