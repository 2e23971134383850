"""Operators that move elements without computing: views, joins, cuts and pads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.errors import NoForm, wrong
from attnc.compiler.frontends.onnx.known import Constant, Int, Sizes, Value, ints, materialise, number
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.table import op


@op("Transpose", stored=True)
def transpose(node: Node, x: Tensor) -> Tensor:
    """Dimensions in another order; reversed where none is said."""
    order = node.get("perm", list(reversed(range(x.dim()))))
    if sorted(order) != list(range(x.dim())):
        raise wrong(node, f"perm {order} is no order of {x.dim()} dimensions")
    return x.permute(order)


@op("Reshape", known=(1,), stored=True)
def reshape(node: Node, x: Tensor, shape: Value) -> Tensor:
    """Other lengths for the same elements: −1 stands for what is left, 0 for the length x has, unless ``allowzero``."""
    lengths = ints(shape, "the shape")
    if not node.get("allowzero", 0):
        for place, length in enumerate(lengths):
            if isinstance(length, int) and length == 0:
                if place >= x.dim():
                    raise wrong(node, f"length {place} of the shape is 0, and the input has {x.dim()} dimensions")
                lengths[place] = x.shape[place]
    return x.reshape(_without_rest(x, lengths))


def _without_rest(x: Tensor, lengths: list[Int]) -> list[Int]:
    """The shape with −1 written out where the lengths before it are those of ``x``: sizes then stay what they are."""
    if not any(isinstance(length, int) and length == -1 for length in lengths):
        return lengths
    place = next(i for i, length in enumerate(lengths) if isinstance(length, int) and length == -1)
    before, after = lengths[:place], lengths[place + 1 :]
    for first in range(x.dim() + 1):
        for last in range(first, x.dim() + 1):
            if _same(before, x.shape[:first]) and _same(after, x.shape[last:]):
                rest: Int = 1
                for length in x.shape[first:last]:
                    rest = rest * length
                return [*before, rest, *after]
    return lengths


def _same(lengths: Sequence[Int], others: Sequence[Int]) -> bool:
    return len(lengths) == len(others) and all(a is b or str(a) == str(b) for a, b in zip(lengths, others, strict=True))


@op("Flatten", stored=True)
def flatten(node: Node, x: Tensor) -> Tensor:
    """A matrix of the dimensions before ``axis`` and those from it on."""
    axis = node.get("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    rows, columns = 1, 1
    for length in x.shape[:axis]:
        rows = rows * length
    for length in x.shape[axis:]:
        columns = columns * length
    return x.reshape(rows, columns)


def _axes(node: Node, axes: Value) -> list[int] | None:
    if axes is None:
        found = node.get("axes")
        return None if found is None else list(found)
    return [int(axis) for axis in ints(axes, "axes")]


@op("Squeeze", known=(1,), stored=True)
def squeeze(node: Node, x: Tensor, axes: Value = None) -> Tensor:
    """Dimensions of length 1 left out."""
    places = _axes(node, axes)
    if places is None:
        places = [i for i, length in enumerate(x.shape) if isinstance(length, int) and length == 1]
    for place in sorted((p % x.dim() for p in places), reverse=True):
        if isinstance(x.shape[place], int) and x.shape[place] != 1:
            raise wrong(node, f"dimension {place} has the length {x.shape[place]}, not 1")
        x = x.squeeze(place)
    return x


@op("Unsqueeze", known=(1,), stored=True)
def unsqueeze(node: Node, x: Tensor, axes: Value = None) -> Tensor:
    """Dimensions of length 1 put in."""
    places = _axes(node, axes) or []
    rank = x.dim() + len(places)
    for place in sorted(p % rank for p in places):
        x = x.unsqueeze(place)
    return x


@op("Concat", stored=True)
def concat(node: Node, *values: Tensor) -> Tensor:
    """Tensors one after the other."""
    return torch.cat(values, node.get("axis", 0))


@op("Split", known=(1,), stored=True)
def split(node: Node, x: Tensor, lengths: Value = None) -> tuple[Tensor, ...]:
    """Parts along an axis: of given lengths, or equal but for the last."""
    axis, count = node.get("axis", 0), len(node.outputs)
    given = node.get("split") if lengths is None else ints(lengths, "the lengths")
    if given is None:
        each = -(-x.shape[axis] // node.get("num_outputs", count))
        given = [each] * (count - 1)
        given.append(x.shape[axis] - each * (count - 1))
    return torch.split(x, given, axis)


@op("Slice", known=(1, 2, 3, 4), stored=True)
def cut(node: Node, x: Tensor, starts: Value, ends: Value, axes: Value = None, steps: Value = None) -> Tensor:
    """Elements from starts to before ends; negative places count from the end, places beyond it are the end."""
    first, last = ints(starts, "starts"), ints(ends, "ends")
    places = list(range(len(first))) if axes is None else [int(a) for a in ints(axes, "axes")]
    strides = [1] * len(first) if steps is None else [int(s) for s in ints(steps, "steps")]
    for start, end, axis, step in zip(first, last, places, strides, strict=True):
        if step < 0:
            x = _backward(x, int(start), int(end), axis % x.dim(), step)
        else:
            x = _forward(x, start, _end(end), axis % x.dim(), step)
    return x


def _forward(x: Tensor, start: Int, end: Int | None, axis: int, step: int) -> Tensor:
    """A slice with a positive step. A symbolic end within a table of fixed length bounds the size: ``table[:n]``."""
    if isinstance(end, torch.SymInt) and isinstance(x.shape[axis], int) and step == 1 and start == 0:
        return x.narrow(axis, 0, end)
    where = [slice(None)] * x.dim()
    where[axis] = slice(start, end, step)
    return x[tuple(where)]


def _end(end: Int) -> Int | None:
    return None if isinstance(end, int) and end >= 2**31 - 1 else end


def _backward(x: Tensor, start: int, end: int, axis: int, step: int) -> Tensor:
    """A slice with a negative step, on the flipped tensor."""
    length = x.shape[axis]
    if not isinstance(length, int):
        if start == -1 and end <= -(2**31) + 1 and step == -1:
            return x.flip(axis)
        raise NoForm("a slice that goes backward along a symbolic size")
    start = min(max(start + length if start < 0 else start, -1), length - 1)
    end = min(max(end + length if end < 0 else end, -1), length - 1)
    where = [slice(None)] * x.dim()
    where[axis] = slice(length - 1 - start, length - 1 - end, -step)
    return x.flip(axis)[tuple(where)]


@op("Expand", known=(1,), stored=True)
def expand(node: Node, x: Tensor, shape: Value) -> Tensor:
    """x repeated along dimensions of length 1; a length of 1 asks for none."""
    lengths = ints(shape, "the shape")
    rank = max(x.dim(), len(lengths))
    x = x.reshape((1,) * (rank - x.dim()) + tuple(x.shape)) if rank > x.dim() else x
    lengths = [1] * (rank - len(lengths)) + lengths
    wanted = [
        have if isinstance(want, int) and want == 1 else want for want, have in zip(lengths, x.shape, strict=True)
    ]
    return x.expand(wanted)


@op("Tile", known=(1,), stored=True)
def tile(node: Node, x: Tensor, repeats: Value) -> Tensor:
    """x repeated whole along each dimension."""
    return x.repeat(ints(repeats, "the repeats"))


@op("Pad", known=(1, 2, 3))
def pad(node: Node, x: Tensor, pads: Value, value: Value = None, axes: Value = None) -> Tensor:
    """Elements put before and behind: a number, or the tensor's own by reflection, its edge, or around."""
    amounts = ints(pads, "the pads")
    places = list(range(x.dim())) if axes is None else [int(a) % x.dim() for a in ints(axes, "axes")]
    mode = node.get("mode", "constant")
    sides = {place: (amounts[i], amounts[i + len(places)]) for i, place in enumerate(places)}
    if mode == "constant":
        flat = [pad for place in reversed(range(x.dim())) for pad in sides.get(place, (0, 0))]
        if isinstance(value, Tensor):
            outside = F.pad(torch.zeros_like(x, dtype=torch.bool), flat, value=True)
            return torch.where(outside, value.reshape(()), F.pad(x, flat))
        return F.pad(
            x, flat, value=number(value, "the fill") if isinstance(value, Constant) and value.tensor.numel() else 0
        )
    for place, (before, after) in sides.items():
        x = _padded(node, x, place, before, after, mode)
    return x


def _padded(node: Node, x: Tensor, axis: int, before: Int, after: Int, mode: str) -> Tensor:
    """One dimension padded by elements of its own."""
    if not all(isinstance(n, int) for n in (before, after)):
        raise NoForm("pads that depend on sizes")
    low, high = int(before), int(after)
    if not low and not high:
        return x
    length = x.shape[axis]
    places = torch.arange(-low, length + high)
    if mode == "edge":
        places = places.clamp(0, length - 1)
    elif mode == "wrap":
        places = torch.remainder(places, length)
    elif mode == "reflect":
        period = 2 * (length - 1)
        places = torch.remainder(places, period) if isinstance(period, torch.SymInt) or period else places * 0
        places = torch.minimum(places, period - places)
    else:
        raise wrong(node, f"mode {mode!r} is not known")
    return x.index_select(axis, places)


@op("DepthToSpace", stored=True)
def depth_to_space(node: Node, x: Tensor) -> Tensor:
    """Channels into blocks of the plane."""
    batch, channels, height, width = x.shape
    block = node.get("blocksize")
    depth = channels // (block * block)
    if node.get("mode", "DCR") == "DCR":
        x = x.reshape(batch, block, block, depth, height, width).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(batch, depth, block, block, height, width).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(batch, depth, height * block, width * block)


@op("SpaceToDepth", stored=True)
def space_to_depth(node: Node, x: Tensor) -> Tensor:
    """Blocks of the plane into channels."""
    batch, channels, height, width = x.shape
    block = node.get("blocksize")
    x = x.reshape(batch, channels, height // block, block, width // block, block)
    x = x.permute(0, 3, 5, 1, 2, 4) if node.get("mode", "DCR") == "DCR" else x.permute(0, 1, 3, 5, 2, 4)
    return x.reshape(batch, channels * block * block, height // block, width // block)


@op("Trilu", known=(1,))
def triangle(node: Node, x: Tensor, k: Value = None) -> Tensor:
    """The part of matrices above (below) a diagonal, zero elsewhere."""
    if isinstance(k, Tensor):
        apart = torch.arange(x.shape[-1]) - torch.arange(x.shape[-2]).unsqueeze(1)
        return torch.where(apart >= k if node.get("upper", 1) else apart <= k, x, torch.zeros_like(x))
    diagonal = 0 if k is None else int(number(k, "k"))
    return torch.triu(x, diagonal) if node.get("upper", 1) else torch.tril(x, diagonal)


@op("ReverseSequence")
def reverse_sequence(node: Node, x: Tensor, lengths: Tensor) -> Tensor:
    """The first elements of each sequence in reverse order."""
    batch, time = node.get("batch_axis", 1), node.get("time_axis", 0)
    if (batch, time) not in ((0, 1), (1, 0)):
        raise NoForm(f"batch axis {batch} and time axis {time}")
    count = lengths.unsqueeze(1)
    places = torch.arange(x.shape[time]).unsqueeze(0)
    places = torch.where(places < count, count - 1 - places, places)
    places = places if batch == 0 else places.transpose(0, 1)
    return x.gather(time, places.reshape(tuple(places.shape) + (1,) * (x.dim() - 2)).expand(x.shape))


@op("SequenceConstruct", stored=True)
def sequence(node: Node, *values: Tensor) -> tuple[list[Value]]:
    """A list of tensors."""
    return (list(values),)


@op("SequenceEmpty")
def empty_sequence(node: Node) -> tuple[list[Value]]:
    """A list of nothing."""
    return ([],)


@op("SequenceAt", known=(0, 1))
def element(node: Node, values: Value, place: Value) -> Value:
    """One tensor of a list."""
    return _list(values)[int(number(place, "the place"))]


@op("SequenceLength", known=(0,))
def length(node: Node, values: Value) -> Constant | Tensor:
    """How many tensors a list has."""
    return torch.full((), len(_list(values)), dtype=torch.int64)


@op("SequenceInsert", known=(0, 1, 2))
def insert(node: Node, values: Value, x: Value, place: Value = None) -> tuple[list[Value]]:
    """A list with one tensor more."""
    made = list(_list(values))
    at = len(made) if place is None else int(number(place, "the place"))
    made.insert(at + len(made) if at < 0 else at, x)
    return (made,)


@op("SequenceErase", known=(0, 1))
def erase(node: Node, values: Value, place: Value = None) -> tuple[list[Value]]:
    """A list with one tensor less."""
    made = list(_list(values))
    del made[-1 if place is None else int(number(place, "the place"))]
    return (made,)


@op("SplitToSequence", known=(1,), stored=True)
def split_to_sequence(node: Node, x: Tensor, lengths: Value = None) -> tuple[list[Value]]:
    """Parts along an axis as a list."""
    axis = node.get("axis", 0)
    if lengths is None:
        parts = torch.split(x, 1, axis)
        return ([part if node.get("keepdims", 1) else part.squeeze(axis) for part in parts],)
    given = ints(lengths, "the lengths")
    each = given[0] if isinstance(lengths, Constant | Sizes) and not lengths.shape else given
    return (list(torch.split(x, each, axis)),)


@op("ConcatFromSequence", known=(0,))
def concat_sequence(node: Node, values: Value) -> Tensor:
    """The tensors of a list one after the other, or along a new dimension."""
    parts = [materialise(value) for value in _list(values)]
    join = torch.stack if node.get("new_axis", 0) else torch.cat
    return join(parts, node.get("axis"))


def _list(values: Value) -> list[Value]:
    if not isinstance(values, list):
        raise NoForm("a sequence that is an input of the model")
    return values
