"""Slices that leave the new tokens' rows, or those of all tokens so far."""

from __future__ import annotations

import sympy

from attnc.compiler.derive.known import TOKEN_AXIS, Kind, Known, is_static
from attnc.compiler.derive.past.axes import ALL, PLACES, PastAxes
from attnc.compiler.derive.refusal import CACHE
from attnc.compiler.derive.step import Step
from attnc.compiler.fuse.layout import tensor_type
from attnc.ir.types import Dim, as_dim, same_dim
from attnc.ir.values import Value

_END = 2**31


def bounds(step: Step, place: int) -> tuple[Dim | None, Dim | None]:
    """From where to where a slice goes, its bounds being arguments ``place`` and the next; None: by data."""
    start, end = step.op.arg(place, "start"), step.op.arg(place + 1, "end")
    return (0 if start is None else step.length(start)), (_END if end is None else step.length(end))


def at_positions(step: Step, axes: PastAxes) -> Known | None:
    """``table[P : P + S]`` of what is there for all tokens, or longer: its rows at the new tokens' positions."""
    first = step.op.args[0] if step.op.args else None
    if step.op.name != "aten.slice.Tensor" or not isinstance(first, Value):
        return None
    known = step.fact(first)
    place = step.dim(1, "dim", len(known.dims))
    dim = known.dims[place]
    if known.kind is Kind.LENGTH or known.role is not None or not is_static(dim) or step.op.arg(4, "step", 1) != 1:
        return None
    (lo, _), length = bounds(step, 2), step.shape[place]
    if lo is None:
        return None
    if dim == (ALL,) and sympy.sympify(lo).could_extract_minus_sign():
        lo = as_dim(sympy.expand(lo + axes.all))
    kind = max(known.kind, Kind.POSITION)
    if same_dim(lo, axes.earlier) and same_dim(length, axes.tokens):
        return Known(kind, (*known.dims[:place], (TOKEN_AXIS,), *known.dims[place + 1 :]))
    if same_dim(lo, 0) and same_dim(length, axes.all):
        return Known(kind, (*known.dims[:place], (ALL,), *known.dims[place + 1 :]))
    return None


def filled(step: Step, axes: PastAxes) -> Known | None:
    """``buffer[:, :, : P + S]`` of a written buffer: the tokens so far; None for anything else."""
    if step.op.name != "aten.slice.Tensor":
        return None
    first, known = step.op.operands[0], step.tensor(0)
    place = step.dim(1, "dim", len(known.dims))
    if len(known.dims[place]) != 1 or not str(known.dims[place][0]).startswith(PLACES):
        return None
    lo, hi = bounds(step, 2)
    if lo != 0 or hi is None or step.op.arg(4, "step", 1) != 1:
        raise step.refuse(CACHE, "places of a buffer are cut otherwise than to the tokens so far")
    if same_dim(step.shape[place], tensor_type(first).shape[place]):
        return known
    if not same_dim(sympy.sympify(step.shape[place]), axes.all):
        raise step.refuse(CACHE, "places of a buffer are cut otherwise than to the tokens so far")
    return Known(known.kind, (*known.dims[:place], (ALL,), *known.dims[place + 1 :]))
