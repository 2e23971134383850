"""Operators that read or write elements by index."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.known import Constant, Int, Value, ints, materialise, number, numbers
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.table import ALL, op


def as_index(places: Tensor) -> Tensor:
    """Integers as torch takes them for indices."""
    return places if places.dtype == torch.int64 else places.to(torch.int64)


def wrapped(places: Tensor, length: Int) -> Tensor:
    """Indices with negative ones counted from the end."""
    places = as_index(places)
    return torch.where(places < 0, torch.add(places, length), places)


@op("Gather", known=(1,), stored=True)
def gather(node: Node, x: Tensor, places: Value) -> Tensor:
    """Slices of x along an axis, by index."""
    axis = node.get("axis", 0) % x.dim()
    if isinstance(places, Constant) and not places.shape:
        return x.select(axis, int(number(places, "the place")))
    if isinstance(places, Constant):
        index = as_index(materialise(places))
        if any(n < 0 for n in numbers(places, "the places")):
            index = wrapped(index, x.shape[axis])
    else:
        index = wrapped(materialise(places), x.shape[axis])
    if axis == 0 and x.dim() == 2 and x.is_floating_point():
        return F.embedding(index, x)
    flat = x.index_select(axis, index.reshape(-1))
    return flat.reshape((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])) if index.dim() != 1 else flat


@op("GatherElements", stored=True)
def gather_elements(node: Node, x: Tensor, places: Tensor) -> Tensor:
    """Elements of x by an index along one axis."""
    axis = node.get("axis", 0) % x.dim()
    return torch.gather(x, axis, wrapped(places, x.shape[axis]))


@op("GatherND", stored=True)
def gather_nd(node: Node, x: Tensor, places: Tensor) -> Tensor:
    """Slices of x by tuples of indices."""
    batch, count = node.get("batch_dims", 0), places.shape[-1]
    if not isinstance(count, int):
        raise NoForm("tuples of a symbolic length")
    index = [wrapped(places[..., i], x.shape[batch + i]) for i in range(count)]
    lead = [torch.arange(x.shape[i]).reshape((1,) * i + (-1,) + (1,) * (places.dim() - 2 - i)) for i in range(batch)]
    return x[(*lead, *index)]


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@op("ScatterElements", "Scatter")
def scatter_elements(node: Node, x: Tensor, places: Tensor, updates: Tensor) -> Tensor:
    """x with elements replaced by, or combined with, others."""
    axis = node.get("axis", 0) % x.dim()
    index, how = wrapped(places, x.shape[axis]), node.get("reduction", "none")
    if how == "none":
        return x.scatter(axis, index, updates)
    return x.scatter_reduce(axis, index, updates, _REDUCTIONS[how], include_self=True)


@op("ScatterND")
def scatter_nd(node: Node, x: Tensor, places: Tensor, updates: Tensor) -> Tensor:
    """x with slices replaced by, or combined with, others; by tuples of indices."""
    count, how = places.shape[-1], node.get("reduction", "none")
    if not isinstance(count, int):
        raise NoForm("tuples of a symbolic length")
    index = [wrapped(places[..., i], x.shape[i]) for i in range(count)]
    if how in ("none", "add"):
        return x.index_put(tuple(index), updates, accumulate=how == "add")
    flat = torch.zeros((), dtype=torch.int64)
    for place, length in zip(index, x.shape, strict=False):
        flat = flat * length + place
    rows = x.reshape(-1, *x.shape[count:])
    given = updates.reshape(-1, *x.shape[count:])
    spread = flat.reshape((-1,) + (1,) * (rows.dim() - 1)).expand(given.shape)
    return rows.scatter_reduce(0, spread, given, _REDUCTIONS[how], include_self=True).reshape(x.shape)


@op("OneHot", known=(1, 2))
def one_hot(node: Node, places: Tensor, depth: Value, values: Value) -> Tensor:
    """One value where the index is, another elsewhere; indices out of range give only the other."""
    (count,) = ints(depth, "the depth") if not _is_float(depth) else [int(number(depth, "the depth"))]
    pair = materialise(values)
    axis = node.get("axis", -1)
    axis = axis + places.dim() + 1 if axis < 0 else axis
    index = places.to(torch.int64).unsqueeze(axis)
    index = torch.where(index < 0, index + count, index)
    line = torch.arange(count).reshape((1,) * axis + (-1,) + (1,) * (places.dim() - axis))
    return torch.where(index == line, pair[1], pair[0])


def _is_float(value: Value) -> bool:
    return isinstance(value, Constant) and value.dtype.is_floating_point


@op("Compress", known=(1,))
def compress(node: Node, x: Tensor, condition: Value) -> Tensor:
    """Slices where a known condition holds."""
    chosen = [i for i, keep in enumerate(numbers(condition, "the condition")) if keep]
    axis = node.get("axis")
    x = x.reshape(-1) if axis is None else x
    return x.index_select(axis or 0, torch.tensor(chosen, dtype=torch.int64))


@op("TensorScatter")
def tensor_scatter(node: Node, past: Tensor, update: Tensor, write: Tensor | None = None) -> Tensor:
    """A cache with new rows written at the place each batch entry says, round and round where ``circular``."""
    axis, count = node.get("axis", -2) % past.dim(), past.dim()
    length, new = past.shape[axis], update.shape[axis]
    line = torch.arange(new)
    start = torch.zeros(past.shape[0], dtype=torch.int64) if write is None else write.to(torch.int64)
    places = start.unsqueeze(1) + line
    if node.get("mode", "linear") == "circular":
        places = torch.remainder(places, length)
    shape = [1] * count
    shape[0], shape[axis] = places.shape[0], new
    return past.scatter(axis, places.reshape(shape).expand(update.shape), update)


@op("NonZero", known=ALL)
def non_zero(node: Node, x: Value) -> Tensor:
    """The places of what isn't zero. Raises NoForm for data: how many there are isn't known."""
    if not isinstance(x, Constant):
        raise NoForm("how many elements it gives depends on data")
    return torch.nonzero(x.tensor).transpose(0, 1)
