"""Look-ups: rows of a constant table by data are a token's own; places of data chosen by data are not."""

from __future__ import annotations

from attnc.compiler.derive.known import Kind, Known, Role, is_static, same_axis
from attnc.compiler.derive.refusal import LENGTH, MIXES
from attnc.compiler.derive.rules import route
from attnc.compiler.derive.rules.pointwise import joined
from attnc.compiler.derive.step import Rule, Step
from attnc.ir.values import Value


def embedding(step: Step) -> Known:
    """Rows of a constant table."""
    table, index = step.tensor(0, "weight"), step.tensor(1, "indices")
    if table.kind is not Kind.UNIFORM:
        raise step.refuse(MIXES, "an embedding table that is data")
    return Known(index.kind, (*index.dims, *table.dims[1:]))


def index_select(step: Step) -> Known:
    """Rows along one dimension."""
    known, index = step.tensor(0), step.tensor(2, "index")
    place = step.dim(1, "dim", len(known.dims))
    return _rows(step, known, place, index)


def _rows(step: Step, known: Known, place: int, index: Known) -> Known:
    """Rows of a static dimension by an index; by data, or by the expert of each place, only from a constant table."""
    if index.role is Role.SORTED and known.kind is Kind.UNIFORM and known.role is None and is_static(known.dims[place]):
        return Known(index.kind, (*known.dims[:place], *index.dims, *known.dims[place + 1 :]), None, index.source)
    if index.role is not None or known.role is not None:
        raise step.refuse(MIXES, "a look-up at the number of a place")
    if not is_static(known.dims[place]):
        raise step.refuse(MIXES, f"a look-up along {'·'.join(map(str, known.dims[place]))}")
    if known.kind is not Kind.UNIFORM and index.kind is not Kind.UNIFORM:
        raise step.refuse(MIXES, "a look-up by data in data")
    return Known(max(known.kind, index.kind), (*known.dims[:place], *index.dims, *known.dims[place + 1 :]))


def index(step: Step) -> Known:
    """``x[i, j]`` and ``x[:, i]``."""
    known = step.tensor(0)
    chosen = step.op.args[1]
    assert isinstance(chosen, tuple)
    places = [i for i, value in enumerate(chosen) if value is not None]
    indices = [step.fact(value) for value in chosen if isinstance(value, Value)]
    if len(indices) == 1:
        routed = route.reordered(step, known, places[0], indices[0])
        return routed or _rows(step, known, places[0], indices[0])
    if places != list(range(places[0], places[0] + len(places))):
        raise step.refuse(MIXES, "a look-up with gaps between its indices")
    return _points(step, known, places, indices)


def _points(step: Step, known: Known, places: list[int], indices: list[Known]) -> Known:
    """Several indices, one for each of neighbouring dimensions, broadcast together: points of a constant table."""
    inner = joined(step, indices, max(len(i.dims) for i in indices))
    if any(not is_static(known.dims[place]) for place in places) or known.kind is not Kind.UNIFORM:
        raise step.refuse(MIXES, "a look-up in data, or along tokens or requests")
    return Known(inner.kind, (*known.dims[: places[0]], *inner.dims, *known.dims[places[-1] + 1 :]))


def gather(step: Step) -> Known:
    """Along a static dimension: every place keeps to itself."""
    known, index = step.tensor(0), step.tensor(2, "index")
    place = step.dim(1, "dim", len(known.dims))
    _same_places(step, [known, index], place)
    return Known(max(known.kind, index.kind), index.dims)


def _same_places(step: Step, operands: list[Known], place: int) -> None:
    """Every operand has the same axes, but along ``place``, where all are static."""
    first = operands[0]
    for known in operands:
        alike = len(known.dims) == len(first.dims) and all(
            same_axis(a, b) for d, (a, b) in enumerate(zip(known.dims, first.dims, strict=True)) if d != place
        )
        if not alike or not is_static(known.dims[place]):
            raise step.refuse(MIXES, "a gather or scatter along tokens or requests, or of a part of them")


def scatter(step: Step) -> Known:
    """Into a static dimension: every place keeps to itself."""
    operands = step.tensors()
    shaped = [known for known in operands if known.dims]
    place = step.dim(1, "dim", len(operands[0].dims))
    _same_places(step, shaped, place)
    return Known(step.kind(operands), operands[0].dims)


def one_hot(step: Step) -> Known:
    """A new static dimension."""
    known = step.tensor(0)
    classes = step.constant(1, "num_classes", -1)
    if not isinstance(classes, int) or classes < 1:
        raise step.refuse(LENGTH, "one_hot whose number of classes is a size, or is read out of data")
    return Known(known.kind, (*known.dims, *step.label(step.shape[-1:])))


RULES: dict[str, Rule] = {
    "aten.embedding": embedding,
    "aten.index_select": index_select,
    "aten.index": index,
    "aten.gather": gather,
    **{f"aten.{name}": scatter for name in ("scatter", "scatter_add", "scatter_reduce")},
    "aten.one_hot": one_hot,
}
