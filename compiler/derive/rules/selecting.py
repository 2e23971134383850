"""Operators that take a part of a tensor, or put one in: slices, selections, splits."""

from __future__ import annotations

import sympy

from attnc.compiler.derive.known import TOKEN_AXIS, Kind, Known, Role, count, is_static
from attnc.compiler.derive.refusal import LENGTH, MIXES
from attnc.compiler.derive.rules.layout import moved
from attnc.compiler.derive.rules.pointwise import joined
from attnc.compiler.derive.step import Rule, Step
from attnc.ir.types import Dim

_END = 2**31
"""A slice's end at or above this means the end of the dimension."""


def slice_(step: Step) -> Known:
    """Free on static dimensions; along a named axis only all of it, or the front of a function of position."""
    known = step.tensor(0)
    place = step.dim(1, "dim", len(known.dims))
    start, end, stride = (step.op.arg(i, n) for i, n in ((2, "start"), (3, "end"), (4, "step")))
    first, last = step.length(start) if start is not None else 0, step.length(end) if end is not None else _END
    if first is None or last is None:
        raise step.refuse(MIXES, "the bounds of a slice are data")
    dim, shape = known.dims[place], step.shape[place]
    whole = (
        first == 0 and stride in (None, 1) and ((isinstance(last, int) and last >= _END) or last == _length(step, dim))
    )
    if whole:
        return known
    sized = not isinstance(first, int) or not isinstance(last, int)
    if is_static(dim):
        return _of_table(step, known, place, (first, last), sized)
    if known.kind <= Kind.POSITION and known.role is None and isinstance(first, int) and first >= 0:
        if isinstance(last, int) and last >= 0 and stride in (None, 1) and dim == (TOKEN_AXIS,):
            return moved(known, _with(known, place, step.label((shape,))[0]))
    raise step.refuse(MIXES, f"a slice [{first}:{last}] of {'·'.join(map(str, dim))} moves values between tokens")


def _of_table(step: Step, known: Known, place: int, bounds: tuple[Dim, Dim], sized: bool) -> Known:
    """A part of a static dimension: ``table[:S]`` is a function of position, another bound that is a size isn't."""
    shape = step.shape[place]
    dims = _with(known, place, step.label((shape,))[0])
    if not sized:
        return moved(known, dims)
    if known.kind > Kind.LENGTH or known.role is not None:
        raise step.refuse(LENGTH, "a slice whose bounds are sizes")
    length, (first, last) = count(known.dims[place]), bounds
    if known.kind <= Kind.POSITION and first == 0 and shape == step.axes.tokens:
        return Known(Kind.POSITION, dims)
    to_end = isinstance(last, int) and last >= length
    at_end = place == len(known.dims) - 1
    if known.kind is Kind.UNIFORM and to_end and at_end and first == length - step.axes.tokens:
        return Known(Kind.LENGTH, dims, Role.SUFFIX, step.op.operands[0])
    return Known(Kind.LENGTH, dims)


def _length(step: Step, dim: tuple[int | str, ...]) -> sympy.Expr:
    return sympy.Mul(*map(step.axes.length, dim))


def _with(known: Known, place: int, dim: tuple[int | str, ...]) -> tuple[tuple[int | str, ...], ...]:
    return (*known.dims[:place], dim, *known.dims[place + 1 :])


def select(step: Step) -> Known:
    """One element of a static dimension, or of a function of position at a fixed place."""
    known = step.tensor(0)
    place = step.dim(1, "dim", len(known.dims))
    dim, at = known.dims[place], step.length(step.op.arg(2, "index"))
    rest = (*known.dims[:place], *known.dims[place + 1 :])
    if at is None:
        raise step.refuse(MIXES, "the place that is selected is data")
    if not isinstance(at, int):
        if known.kind > Kind.LENGTH:
            raise step.refuse(LENGTH, "a selection at a size")
        return Known(Kind.LENGTH, rest)
    if is_static(dim) or (known.kind is Kind.UNIFORM and known.role is None):
        return moved(known, rest)
    if known.kind is Kind.POSITION and dim == (TOKEN_AXIS,) and at >= 0:
        return moved(known, rest)
    raise step.refuse(MIXES, f"one place of {'·'.join(map(str, dim))} is selected")


def parts(step: Step) -> tuple[Known, ...]:
    """Splits of a static dimension."""
    known = step.tensor(0)
    place = _split_dim(step, len(known.dims))
    if not is_static(known.dims[place]):
        raise step.refuse(MIXES, f"a split along {'·'.join(map(str, known.dims[place]))}")
    if "unbind" in step.op.name:
        rest = (*known.dims[:place], *known.dims[place + 1 :])
        return (moved(known, rest),) * len(step.shapes)
    return tuple(moved(known, _with(known, place, step.label((shape[place],))[0])) for shape in step.shapes)


def _split_dim(step: Step, rank: int) -> int:
    return step.dim(1 if "unbind" in step.op.name else 2, "dim", rank)


def put(step: Step) -> Known:
    """A part written into a tensor along a static dimension."""
    base, part = step.tensor(0), step.tensor(1, "src")
    rank = len(base.dims)
    place = step.dim(2, "dim", rank)
    if "select_scatter" in step.op.name:
        part = moved(part, (*part.dims[:place], (), *part.dims[place:]))
    if not (is_static(base.dims[place]) and is_static(part.dims[place])):
        raise step.refuse(MIXES, "a part is written along tokens or requests")
    if step.sized_scalars() or base.role or part.role:
        raise step.refuse(MIXES, "a part is written at a place that is a size")
    both = [moved(k, _with(k, place, ())) for k in (base, part)]
    return moved(alike := joined(step, both, rank), _with(alike, place, base.dims[place]))


RULES: dict[str, Rule] = {
    "aten.slice": slice_,
    "aten.select": select,
    **{f"aten.{name}": parts for name in ("split", "split_with_sizes", "chunk", "unbind", "tensor_split")},
    "aten.slice_scatter": put,
    "aten.select_scatter": put,
}
