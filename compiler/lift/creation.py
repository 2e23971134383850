"""Tensors made from nothing: arange, full and its relatives, eye, host constants."""

from __future__ import annotations

from collections.abc import Callable

import sympy

from attnc.compiler.lift.convert import convert
from attnc.compiler.lift.element import Coords, Element, Refused, number, pick, single
from attnc.compiler.lift.exact import fit
from attnc.compiler.lift.scope import Scope, tensor
from attnc.ir.types import DType, ScalarType
from attnc.ir.values import Arg, Op, Value


def _filled(position: int, keyword: str) -> Callable[[Scope, Op, Coords], Element]:
    """A rule for a tensor that holds one argument everywhere."""
    return lambda scope, op, at: fill(scope, op.arg(position, keyword), tensor(op.result).dtype)


def _constant(value: int) -> Callable[[Scope, Op, Coords], Element]:
    return lambda scope, op, at: fill(scope, value, tensor(op.result).dtype)


def fill(scope: Scope, arg: Arg, dtype: DType) -> Element:
    """A scalar argument (a number, a host integer, a tensor of rank 0) as an element of ``dtype``.

    Raises Refused where the dtype would change a finite number into an infinity: the host raises an error there.
    """
    if isinstance(arg, Value) and not isinstance(arg.type, ScalarType):
        return convert(scope, scope.at(arg, ()), tensor(arg).dtype, dtype)
    if isinstance(arg, Value):
        return convert(scope, single(scope.scalar(arg)), DType.I64, dtype)
    if not isinstance(arg, int | float):
        raise Refused(f"fill value {arg!r}")
    element = convert(scope, number(arg), DType.F64 if isinstance(arg, float) else DType.I64, dtype)
    if isinstance(arg, float) and abs(arg) != float("inf") and element in (number(float("inf")), number(float("-inf"))):
        raise Refused(f"{arg} overflows {dtype.value}")
    return element


def arange(scope: Scope, op: Op, at: Coords) -> Element:
    """start + i·step, for integer start and step."""
    has_start = op.name != "aten.arange.default"
    start = scope.scalar(op.arg(0, "start")) if has_start else sympy.Integer(0)
    step = scope.scalar(op.arg(2, "step", 1)) if has_start else sympy.Integer(1)
    return single(fit(start + at[0] * step, tensor(op.result).dtype, scope.bounds))


def eye(scope: Scope, op: Op, at: Coords) -> Element:
    """1 on the diagonal."""
    same = scope.simplify(sympy.Eq(at[0], at[1]))
    return same if tensor(op.result).dtype is DType.B1 else pick(same, single(1), single(0))


def host_constant(scope: Scope, op: Op, at: Coords) -> Element:
    """A tensor held by the graph: by formula where its whole content equals one, else loaded if integer or boolean."""
    name = op.attrs.get("name", op.arg(0, "name"))
    formula = scope.lifter.content(str(name))
    if formula is None:
        raise Refused("the content of the constant follows no formula")
    return formula(scope, at)


RULES: dict[str, Callable[[Scope, Op, Coords], Element]] = {
    "ir.constant": host_constant,
    "aten.arange.default": arange,
    "aten.arange.start": arange,
    "aten.arange.start_step": arange,
    "aten.eye.default": eye,
    "aten.eye.m": eye,
    "aten.full.default": _filled(1, "fill_value"),
    "aten.full_like.default": _filled(1, "fill_value"),
    "aten.new_full.default": _filled(2, "fill_value"),
    "aten.scalar_tensor.default": _filled(0, "s"),
    "aten.fill.Scalar": _filled(1, "value"),
    "aten.fill.Tensor": _filled(1, "value"),
    "aten.zero.default": _constant(0),
    "aten.zeros.default": _constant(0),
    "aten.zeros_like.default": _constant(0),
    "aten.new_zeros.default": _constant(0),
    "aten.ones.default": _constant(1),
    "aten.ones_like.default": _constant(1),
    "aten.new_ones.default": _constant(1),
}
