"""Rearranging ops: from elements of the result to the elements of the operands they are.

One table, keyed by op name. An op missing here, or a form of it not known, ends the walk; it is never guessed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnc.compiler.fuse.axes import Coords, LayoutError, broadcast, equal
from attnc.compiler.fuse.layout import LAYOUT_OPS, tensor_type, to_input
from attnc.compiler.lift.element import Refused
from attnc.compiler.lift.scalars import scalar
from attnc.compiler.rotary.reads import Cut, Read, Taken, Window
from attnc.ir.types import Dim, TensorType, TupleType, as_dim
from attnc.ir.values import Arg, Op, Value


def sources(read: Read) -> list[Read] | None:
    """Where an op that only rearranges elements takes them from; None for any other op, or one not followed here."""
    op, read = read.value.op, read.fresh()
    if op is None or op.name not in REARRANGING:
        return None
    try:
        return _RULES[op.name](read, op, read.coords[: tensor_type(read.value).rank])
    except LayoutError:
        return None


def _layout(read: Read, op: Op, coords: Coords) -> list[Read]:
    return [read.moved(*to_input(op, coords))]


def _same_numbers(read: Read, op: Op, coords: Coords) -> list[Read]:
    """``view_as_real``, ``view_as_complex``: the component of a complex value is the last coordinate of a real one."""
    source = _operand(op)
    return [Read(source, read.coords, read.chosen, read.numbers)]


def _slice(read: Read, op: Op, coords: Coords) -> list[Read] | None:
    source, dim = _operand(op), _dimension(op, 1, len(coords))
    start, end, step = op.arg(2, "start", 0), op.arg(3, "end"), op.arg(4, "step", 1)
    before, after = tensor_type(source).shape[dim], tensor_type(read.value).shape[dim]
    if step == 1 and equal(before, after):
        return [read.moved(source, coords)]
    index = read.index(dim)
    if index is None:
        cut = Cut(_known(start), step, after, (start, end))
        window = Window(before, atomic=True, part=coords[dim], cut=cut)
        return [read.moved(source, (*coords[:dim], (window,), *coords[dim + 1 :]))]
    begin = 0 if start is None else start
    if not isinstance(begin, int) or not isinstance(step, int) or not isinstance(before, int):
        return None
    first = begin + before if begin < 0 else begin
    return [read.renumbered(source, coords, dim, index * step + max(0, min(first, before)))]


def _known(start: Arg) -> Arg | Dim:
    """A start as an expression of sizes where it is one."""
    try:
        return 0 if start is None else as_dim(scalar(start))
    except Refused:
        return start


def _select(read: Read, op: Op, coords: Coords) -> list[Read] | None:
    return _picked(read, _operand(op), _dimension(op, 1, len(coords) + 1), op.arg(2, "index"), coords)


def _picked(read: Read, source: Value, dim: int, index: Arg, coords: Coords) -> list[Read] | None:
    """One index of a dimension the result lacks."""
    length = tensor_type(source).shape[dim]
    if isinstance(index, int) and index < 0 and isinstance(length, int):
        index += length
    if not isinstance(index, int) or index < 0:
        return None
    return [read.renumbered(source, (*coords[:dim], (), *coords[dim:]), dim, np.full(len(read.chosen), index))]


def _joined(read: Read, op: Op, coords: Coords) -> list[Read] | None:
    """``cat``: each lane reads the operand its index falls in."""
    dim = _dimension(op, 1, len(coords))
    index = read.index(dim)
    if index is None:
        return None
    pieces, start = [], 0
    for operand in _operands(op):
        length = tensor_type(operand).shape[dim]
        if not isinstance(length, int):
            return None
        chosen = read.chosen & (index >= start) & (index < start + length)
        if chosen.any():
            pieces.append(read.renumbered(operand, coords, dim, index - start, chosen))
        start += length
    return pieces


def _stacked(read: Read, op: Op, coords: Coords) -> list[Read] | None:
    dim = _dimension(op, 1, len(coords))
    index = read.index(dim)
    if index is None:
        return None
    rest = (*coords[:dim], *coords[dim + 1 :])
    chosen = [read.chosen & (index == place) for place, _ in enumerate(_operands(op))]
    return [read.moved(x, rest, lanes) for x, lanes in zip(_operands(op), chosen, strict=True) if lanes.any()]


def _written(read: Read, op: Op, coords: Coords) -> list[Read] | None:
    """``slice_scatter``: lanes inside the slice read the written tensor, the others the one written to."""
    target, written, dim = _operand(op), op.arg(1, "src"), _dimension(op, 2, len(coords))
    start, step, index = op.arg(3, "start", 0) or 0, op.arg(5, "step", 1), read.index(dim)
    if index is None or not isinstance(written, Value) or not isinstance(start, int) or not isinstance(step, int):
        return None
    count = tensor_type(written).shape[dim]
    if start < 0 or not isinstance(count, int):
        return None
    place = (index - start) // step
    inside = read.chosen & (index == start + place * step) & (place >= 0) & (place < count)
    pieces = [read.moved(target, coords, read.chosen & ~inside)]
    pieces.append(read.renumbered(written, coords, dim, place, inside))
    return [piece for piece in pieces if piece.chosen.any()]


def _put(read: Read, op: Op, coords: Coords) -> list[Read] | None:
    """``select_scatter``: lanes at the index read the written tensor, the others the one written to."""
    target, written, dim = _operand(op), op.arg(1, "src"), _dimension(op, 2, len(coords))
    place, at, length = op.arg(3, "index"), read.index(dim), tensor_type(read.value).shape[dim]
    if at is None or not isinstance(written, Value) or not isinstance(place, int) or not isinstance(length, int):
        return None
    inside = read.chosen & (at == place % length)
    pieces = [read.moved(target, coords, read.chosen & ~inside)]
    pieces.append(read.moved(written, (*coords[:dim], *coords[dim + 1 :]), inside))
    return [piece for piece in pieces if piece.chosen.any()]


def _copied(read: Read, op: Op, coords: Coords) -> list[Read] | None:
    """``copy``: every element is the written tensor's, which broadcasts."""
    written = op.arg(1, "src")
    if not isinstance(written, Value) or tensor_type(written).dtype is not tensor_type(read.value).dtype:
        return None
    return [read.moved(written, broadcast(coords, tensor_type(written).shape))]


def _gathered(read: Read, op: Op, coords: Coords) -> list[Read] | None:
    """Rows of a table chosen by one index tensor, along any dimension."""
    table, indices, dim = _table(op)
    if not isinstance(table, Value) or not isinstance(indices, Value) or not tensor_type(indices).dtype.is_int:
        return None
    rank = tensor_type(indices).rank
    taken = Taken(tensor_type(table).shape[dim], atomic=True, index=indices, at=coords[dim : dim + rank])
    return [read.moved(table, (*coords[:dim], (taken,), *coords[dim + rank :]))]


def _table(op: Op) -> tuple[Arg, Arg, int]:
    """Table, indices and the dimension they index; no indices where the form isn't known."""
    if op.name == "aten.index_select.default":
        return op.arg(0, "self"), op.arg(2, "index"), _dimension(op, 1, tensor_type(op.result).rank)
    if op.name == "aten.embedding.default":
        return op.arg(0, "weight"), op.arg(1, "indices"), 0
    lists = op.arg(1, "indices")
    given = [(dim, part) for dim, part in enumerate(lists if isinstance(lists, tuple) else ()) if part is not None]
    dim, indices = given[0] if len(given) == 1 else (0, None)
    return op.arg(0, "self"), indices, dim


def _getitem(read: Read, op: Op, coords: Coords) -> list[Read] | None:
    """One part of a split, or one slice of ``unbind``."""
    whole, place = op.args[0], op.args[1]
    producer = whole.op if isinstance(whole, Value) else None
    if producer is None or not isinstance(place, int) or not isinstance(producer.result.type, TupleType):
        return None
    if producer.name == "aten.unbind.int":
        return _picked(read, _operand(producer), _dimension(producer, 1, len(coords) + 1), place, coords)
    if producer.name not in _SPLITS:
        return None
    dim = _dimension(producer, 2, len(coords))
    index = read.index(dim)
    parts = producer.result.type.elements[:place]
    lengths = [part.shape[dim] for part in parts if isinstance(part, TensorType)]
    if index is None or len(lengths) != place or not all(isinstance(n, int) for n in lengths):
        return None
    return [read.renumbered(_operand(producer), coords, dim, index + sum(n for n in lengths if isinstance(n, int)))]


def _operand(op: Op) -> Value:
    """The tensor an op rearranges. Raises LayoutError where there is none."""
    first = op.args[0] if op.args else op.kwargs.get("self")
    if not isinstance(first, Value):
        raise LayoutError(f"{op.name} has no tensor operand")
    return first


def _operands(op: Op) -> list[Value]:
    """The tensors an op joins. Raises LayoutError where they are no list of tensors."""
    parts = op.arg(0, "tensors")
    if not isinstance(parts, tuple) or not all(isinstance(part, Value) for part in parts):
        raise LayoutError(f"{op.name} of something else than tensors")
    return [part for part in parts if isinstance(part, Value)]


def _dimension(op: Op, position: int, rank: int) -> int:
    """A dimension argument, from the front. Raises LayoutError where it isn't a constant."""
    dim = op.arg(position, "dim", 0)
    if not isinstance(dim, int):
        raise LayoutError(f"{op.name} over a dimension known only at run time")
    return dim % rank


GATHERS = frozenset(("aten.index.Tensor", "aten.index_select.default", "aten.embedding.default"))
"""Rows of a table by index."""

_SPLITS = frozenset(
    f"aten.{name}" for name in ("split.Tensor", "split.sizes", "split_with_sizes.default", "chunk.default")
)
PARTING = _SPLITS | {"aten.unbind.int"}
"""Ops whose result is a tuple of parts."""

_RULES: dict[str, Callable[[Read, Op, Coords], list[Read] | None]] = {
    **dict.fromkeys(LAYOUT_OPS, _layout),
    "aten.view_as_real.default": _same_numbers,
    "aten.view_as_complex.default": _same_numbers,
    "aten.slice.Tensor": _slice,
    "aten.select.int": _select,
    "aten.cat.default": _joined,
    "aten.stack.default": _stacked,
    "aten.slice_scatter.default": _written,
    "aten.select_scatter.default": _put,
    "aten.copy.default": _copied,
    **dict.fromkeys(GATHERS, _gathered),
    "py.getitem": _getitem,
}

REARRANGING = frozenset(_RULES)
"""Ops whose elements are elements of their operands."""
