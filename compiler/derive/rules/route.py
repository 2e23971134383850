"""Mixtures of experts: tokens sorted by expert, worked on in that order, and put back.

The order is a bijection of routed slots (token, choice). Work along it is row by row, and its inverse undoes it, so
every slot ends with its own token; which tokens stand beside it in between doesn't matter. An expert that drops tokens
when it is full computes with counts or places, and that is refused.
"""

from __future__ import annotations

from attnc.compiler.derive.known import BATCH, TOKEN_AXIS, Kind, Known, Role, count
from attnc.compiler.derive.refusal import MIXES
from attnc.compiler.derive.rules.pointwise import slots
from attnc.compiler.derive.rules.reduce import sort
from attnc.compiler.derive.step import Rule, Step
from attnc.ir.values import Value

_TOKENS = (BATCH, TOKEN_AXIS)


def ordered(step: Step) -> Known | tuple[Known, ...]:
    """A sort over all routed slots gives an order; over a static dimension it is an ordinary sort."""
    known = step.tensor(0)
    if len(known.dims) != 1 or known.dims[0][:2] != _TOKENS or known.kind is not Kind.TOKEN:
        found = sort(step)
        return found if len(found) > 1 else found[0]
    if step.op.arg(3 if step.op.name.endswith(".stable") else 2, "descending", False):
        raise step.refuse(MIXES, "experts in descending order, which their counts are not in")
    source = step.op.results[0]  # two sorts of one value may differ
    dims = ((f"R{count(known.dims[0])}",),)
    order = Known(Kind.TOKEN, dims, Role.ORDER, source)
    if "argsort" in step.op.name:
        return order
    return Known(Kind.TOKEN, dims, Role.SORTED, source), order


def counted(step: Step) -> Known:
    """A histogram of the sorted experts: how many slots each got."""
    known = step.tensor(0)
    if known.role is not Role.SORTED:
        raise step.refuse(MIXES, "a histogram over tokens")
    bins, least, most = (step.op.arg(i, name) for i, name in ((1, "bins"), (2, "min"), (3, "max")))
    if "histc" in step.op.name and not (isinstance(bins, int) and (least, most) == (0, bins - 1)):
        raise step.refuse(MIXES, "a histogram that is not one bin for each expert")
    return Known(known.kind, step.label(), Role.COUNT, known.source)


def grouped(step: Step) -> Known:
    """A product of each expert's rows with its own weights."""
    operands = step.tensors()
    if len(operands) < 3:
        raise step.refuse(MIXES, "a grouped product without offsets")
    rows, weights, offsets = operands[:3]
    fits = rows.kind is Kind.TOKEN and rows.role is None and rows.dims[0][:1] and str(rows.dims[0][0]).startswith("R")
    if not fits or weights.kind is not Kind.UNIFORM or offsets.role is not Role.OFFSET:
        raise step.refuse(MIXES, "a grouped product that isn't one of routed slots with constant weights")
    if rows.source is not offsets.source:
        raise step.refuse(MIXES, "rows in the order of one router, offsets of another")
    return Known(Kind.TOKEN, (rows.dims[0], *step.label(step.shape[1:])), None, rows.source)


def placed(step: Step) -> Known:
    """The inverse of an order: the number of each place, put at the slot that stands there."""
    chosen = step.op.args[1]
    assert isinstance(chosen, tuple)
    indices = [step.fact(v) for v in chosen if isinstance(v, Value)]
    values = step.tensor(2, "values")
    if len(indices) == 1 and indices[0].role is Role.ORDER and values.role is Role.ROW_NUMBER:
        if indices[0].dims == values.dims and not step.op.arg(3, "accumulate", False):
            return Known(Kind.TOKEN, indices[0].dims, Role.INVERSE, indices[0].source)
    raise step.refuse(MIXES, "values are put at places that are data")


def reordered(step: Step, known: Known, place: int, index: Known) -> Known | None:
    """``x[order]``, ``x[tokens of order]``, ``y[inverse]``; None for an index that is no place."""
    if index.role not in (Role.ORDER, Role.TOKEN_ORDER, Role.INVERSE):
        return None
    routed = index.dims[0]
    per_token = slots(index.dims)
    tokens = (*_TOKENS, per_token) if per_token > 1 else _TOKENS
    if place == 0 and known.kind is Kind.TOKEN and known.role is None:
        rest = known.dims[1:]
        if index.role is Role.TOKEN_ORDER and known.dims[0] == _TOKENS:
            return Known(Kind.TOKEN, (routed, *rest), None, index.source)
        if index.role is Role.ORDER and _tokens_of(known) == tokens:
            return Known(Kind.TOKEN, (routed, *rest), None, index.source)
        if index.role is Role.INVERSE and known.dims[0] == routed and known.source is index.source:
            return Known(Kind.TOKEN, (tokens, *rest))
    raise step.refuse(MIXES, f"{index.role.value} picks from something else than the slots it orders")


def _tokens_of(known: Known) -> tuple[int | str, ...]:
    per_token = count(known.dims[0])
    return (*known.dims[0][:2], per_token) if per_token > 1 else known.dims[0]


RULES: dict[str, Rule] = {
    "aten.sort": ordered,
    "aten.argsort": ordered,
    "aten.histc": counted,
    "aten.bincount": counted,
    "aten._grouped_mm": grouped,
    "transformers.grouped_mm_fallback": grouped,
    "aten.index_put": placed,
}
