"""Operators that make a tensor from sizes and constants."""

from __future__ import annotations

import sympy

from attnc.compiler.derive.known import BATCH, DIFFERENCE, TOKEN_AXIS, Kind, Known, Role, is_static
from attnc.compiler.derive.refusal import MIXES
from attnc.compiler.derive.step import Rule, Step


def constant(step: Step) -> Known:
    """The same value everywhere, unless the value is a size."""
    return Known(step.kind_of_sizes() if _filled_with_size(step) else Kind.UNIFORM, step.label())


def _filled_with_size(step: Step) -> bool:
    """Whether the value that is filled in (not the shape) is computed from sizes."""
    places = {"aten.full": 1, "aten.scalar_tensor": 0, "aten.new_full": 2}
    place = places.get(step.op.name.rpartition(".")[0])
    return place is not None and step.op.arg(place, "fill_value") in step.sized_scalars()


def arange(step: Step) -> Known:
    """Positions where it counts from a constant; differences of positions where the middle one is a constant.

    0 … B − 1 number the requests. From any other start, sizes enter.
    """
    start, end, stride = _bounds(step)
    if start is None or end is None or stride is None:
        raise step.refuse(MIXES, "a range whose bounds are data")
    if all(isinstance(bound, int) for bound in (start, end, stride)):
        return Known(Kind.UNIFORM, step.label())
    if start == 0 and stride == 1:
        if end == step.axes.batch:
            return Known(Kind.UNIFORM, ((BATCH,),), Role.BATCH_INDEX)
        slots = sympy.cancel(sympy.sympify(end) / (step.axes.batch * step.axes.tokens))
        if slots.is_Integer:
            return Known(Kind.UNIFORM, ((f"R{slots}",),), Role.ROW_NUMBER)
    length = step.shape[0]
    if step.axes.is_encoder(length) and step.kind_of_sizes() is Kind.REQUEST:
        return Known(Kind.REQUEST, step.label())
    if isinstance(start, int) and isinstance(stride, int) and length == step.axes.tokens:
        return Known(Kind.POSITION, ((TOKEN_AXIS,),))
    middle = sympy.sympify(start) + stride * (step.axes.tokens - 1)
    if length == step.axes.length(DIFFERENCE) and sympy.expand(middle).is_Integer:
        return Known(Kind.POSITION, ((DIFFERENCE,),))
    return Known(Kind.LENGTH, step.label())


def _bounds(step: Step) -> tuple[object, object, object]:
    args = step.op.args
    overload = step.op.name.rpartition(".")[2]
    if overload == "default":
        return 0, step.length(args[0]), 1
    stride = step.op.arg(2, "step", 1)
    return step.length(args[0]), step.length(args[1]), step.length(stride)


def triangle(step: Step) -> Known:
    """The lower or upper triangle: a function of both positions where the two dimensions are positions."""
    known = step.tensor(0)
    rows, columns = known.dims[-2:]
    if is_static(rows) and is_static(columns):
        return known
    diagonal = step.op.arg(1, "diagonal", 0)
    if known.kind <= Kind.POSITION and isinstance(diagonal, int) and rows == columns == (TOKEN_AXIS,):
        return Known(Kind.POSITION, known.dims)
    raise step.refuse(MIXES, "a triangle of values that aren't positions")


RULES: dict[str, Rule] = {
    **{
        f"aten.{name}": constant
        for name in "zeros ones full empty scalar_tensor new_ones new_zeros new_empty new_full".split()
    },
    "aten.arange": arange,
    "aten.tril": triangle,
    "aten.triu": triangle,
}
