"""Integer tensors whose entries are sizes: the operators exporters make shapes with, on formulas instead of tensors.

:func:`apply` returns None where a node is none of these or its result would be data; it is then called in its ATen form
on the tensor the sizes make.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from attnc.compiler.frontends.onnx.dtypes import TO_TORCH
from attnc.compiler.frontends.onnx.known import (
    MOST_SIZES,
    Constant,
    Int,
    Items,
    Known,
    Sizes,
    Value,
    as_items,
    items_of,
    known_sizes,
)
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.torch import private

INTEGERS = (torch.int64, torch.int32)


class _Data(Exception):
    """The result of a node is no formula over sizes."""


def knows(node: Node) -> bool:
    """Whether an operator's results may be sizes."""
    return not node.domain and (node.op in ("Shape", "Size") or node.op in _RULES)


def apply(node: Node, inputs: Sequence[Value]) -> tuple[Any, ...] | None:
    """The results of a node as sizes, or None."""
    if node.domain:
        return None
    if node.op in ("Shape", "Size"):
        return (_shape(node, inputs[0]),)
    rule = _RULES.get(node.op)
    if rule is None or not any(isinstance(value, Sizes) for value in inputs):
        return None
    known = [value for value in inputs if isinstance(value, Constant | Sizes)]
    if len(known) != sum(value is not None for value in inputs):
        return None
    if sum(math.prod(value.shape) for value in known) > MOST_SIZES:
        return None
    try:
        return rule(node, *inputs)
    except _Data:
        return None


def _shape(node: Node, x: Value) -> Known:
    if not isinstance(x, Tensor | Constant | Sizes):
        raise _Data
    lengths: list[Int] = list(x.shape)
    if node.op == "Size":
        return known_sizes(as_items(_product(lengths)))
    rank = len(lengths)
    start, end = (min(max(n + rank if n < 0 else n, 0), rank) for n in (node.get("start", 0), node.get("end", rank)))
    return known_sizes(as_items(lengths[start:end]))


def _product(lengths: Sequence[Int]) -> Int:
    total: Int = 1
    for length in lengths:
        total = total * length
    return total


def _elementwise(function: Callable[..., Any], dtype: torch.dtype | None = None) -> Callable[..., tuple[Known, ...]]:
    def rule(node: Node, *values: Known) -> tuple[Known, ...]:
        if any(value.dtype not in INTEGERS for value in values if value.dtype != torch.bool):
            raise _Data
        arrays = numpy.broadcast_arrays(*(items_of(value) for value in values))
        made = numpy.empty(arrays[0].shape, dtype=object)
        for place in numpy.ndindex(made.shape):
            made[place] = function(*(array[place] for array in arrays))
        return (known_sizes(made, dtype or values[-1].dtype),)

    return rule


def _decided(condition: Any) -> bool:
    """A comparison of sizes that has one answer for all of them."""
    if isinstance(condition, bool):
        return condition
    if private.always(condition):
        return True
    if private.never(condition):
        return False
    raise _Data


def _compared(function: Callable[[Any, Any], Any]) -> Callable[..., tuple[Known, ...]]:
    return _elementwise(lambda a, b: int(_decided(function(a, b))), torch.bool)


def _positive(*entries: Int) -> bool:
    return all(entry >= 0 if isinstance(entry, int) else private.always(entry >= 0) for entry in entries)


def _divided(a: Int, b: Int) -> Int:
    """The quotient rounded toward zero, as ONNX has it for integers."""
    if isinstance(a, int) and isinstance(b, int) and b:
        return int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b))
    if not _positive(a, b):
        raise _Data
    return a // b


def _remainder(a: Int, b: Int) -> Int:
    if not _positive(a, b):
        raise _Data
    return a % b


def _greater(a: Int, b: Int) -> Int:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else private.greater(a, b)


def _smaller(a: Int, b: Int) -> Int:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else private.smaller(a, b)


def _folded(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def fold(*entries: Int) -> Int:
        total = entries[0]
        for entry in entries[1:]:
            total = function(total, entry)
        return total

    return fold


def _where(node: Node, condition: Known, x: Known, y: Known) -> tuple[Known, ...]:
    if not isinstance(condition, Constant):
        raise _Data
    return _elementwise(lambda c, a, b: a if c else b)(node, condition, x, y)


def _cast(node: Node, x: Known) -> tuple[Known, ...]:
    dtype = TO_TORCH.get(node.get("to"))
    if dtype not in INTEGERS or x.dtype not in INTEGERS:
        raise _Data
    return (known_sizes(items_of(x), dtype),)


def _integers(value: Value) -> list[int]:
    """A constant input as Python integers."""
    if not isinstance(value, Constant):
        raise _Data
    return [int(item) for item in items_of(value).reshape(-1)]


def _gather(node: Node, x: Known, places: Value) -> tuple[Known, ...]:
    items, axis = items_of(x), node.get("axis", 0)
    if not isinstance(places, Constant):
        raise _Data
    index = numpy.array(_integers(places), dtype=numpy.int64).reshape(places.shape)
    return (known_sizes(_array(numpy.take(items, index, axis=axis)), x.dtype),)


def _slice(node: Node, x: Known, *bounds: Value) -> tuple[Known, ...]:
    items = items_of(x)
    starts, ends = _integers(bounds[0]), _integers(bounds[1])
    axes = _integers(bounds[2]) if len(bounds) > 2 and bounds[2] is not None else list(range(len(starts)))
    steps = _integers(bounds[3]) if len(bounds) > 3 and bounds[3] is not None else [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 0:
            raise _Data
        where = [slice(None)] * items.ndim
        where[axis] = slice(start, end, step)
        items = items[tuple(where)]
    return (known_sizes(items, x.dtype),)


def _concat(node: Node, *values: Known) -> tuple[Known, ...]:
    return (known_sizes(numpy.concatenate([items_of(v) for v in values], axis=node.get("axis", 0)), values[0].dtype),)


def _split(node: Node, x: Known, lengths: Value = None) -> tuple[Known, ...]:
    items, axis = items_of(x), node.get("axis", 0)
    count = len(node.outputs)
    given = _integers(lengths) if lengths is not None else node.get("split")
    if given is None:
        each = -(-items.shape[axis] // count)
        given = [min(each, items.shape[axis] - i * each) for i in range(count)]
    parts = numpy.split(items, numpy.cumsum(given)[:-1], axis=axis)
    return tuple(known_sizes(part, x.dtype) for part in parts)


def _axes(node: Node, axes: Value) -> list[int] | None:
    return node.get("axes") if axes is None else _integers(axes)


def _unsqueeze(node: Node, x: Known, axes: Value = None) -> tuple[Known, ...]:
    items, places = items_of(x), _axes(node, axes) or []
    return (known_sizes(_array(numpy.expand_dims(items, tuple(places))), x.dtype),)


def _squeeze(node: Node, x: Known, axes: Value = None) -> tuple[Known, ...]:
    items, places = items_of(x), _axes(node, axes)
    return (known_sizes(_array(numpy.squeeze(items, None if places is None else tuple(places))), x.dtype),)


def _array(found: Any) -> Items:
    """numpy hands out the element itself where an array has no dimension."""
    return found if isinstance(found, numpy.ndarray) else as_items(found)


def _reshape(node: Node, x: Known, shape: Value) -> tuple[Known, ...]:
    lengths = _integers(shape)
    if 0 in lengths:
        raise _Data
    return (known_sizes(items_of(x).reshape(lengths), x.dtype),)


def _reduced(function: Callable[..., Any]) -> Callable[..., tuple[Known, ...]]:
    def rule(node: Node, x: Known, axes: Value = None) -> tuple[Known, ...]:
        places, items = _axes(node, axes), items_of(x)
        if items.ndim != 1 or places not in (None, [0], [-1]) or not items.size:
            raise _Data
        total = function(*items)
        return (known_sizes(as_items([total]) if node.get("keepdims", 1) else as_items(total), x.dtype),)

    return rule


_RULES: dict[str, Callable[..., tuple[Any, ...]]] = {
    "Add": _elementwise(lambda a, b: a + b),
    "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b),
    "Div": _elementwise(_divided),
    "Mod": _elementwise(_remainder),
    "Neg": _elementwise(lambda a: -a),
    "Abs": _elementwise(lambda a: a if _positive(a) else private.greater(a, -a)),
    "Max": _elementwise(_folded(_greater)),
    "Min": _elementwise(_folded(_smaller)),
    "Equal": _compared(lambda a, b: a == b),
    "Less": _compared(lambda a, b: a < b),
    "LessOrEqual": _compared(lambda a, b: a <= b),
    "Greater": _compared(lambda a, b: a > b),
    "GreaterOrEqual": _compared(lambda a, b: a >= b),
    "Where": _where,
    "Cast": _cast,
    "Identity": lambda node, x: (x,),
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Split": _split,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "ReduceProd": _reduced(_folded(lambda a, b: a * b)),
    "ReduceSum": _reduced(_folded(lambda a, b: a + b)),
    "ReduceMax": _reduced(_folded(_greater)),
    "ReduceMin": _reduced(_folded(_smaller)),
}
