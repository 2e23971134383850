"""Layout ops: from the coordinates of a result to those of its input, and the other way.

One table, keyed by op name. An op missing here ends a peel; it is never guessed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from attnc.compiler.fuse.axes import (
    Axis,
    Coords,
    LayoutError,
    divide,
    equal,
    flatten,
    is_one,
    regroup,
    split,
)
from attnc.ir.types import Dim, TensorType
from attnc.ir.values import Literal, Op, Value

VIEWS = frozenset(
    f"aten.{name}"
    for name in ("view.default", "reshape.default", "_unsafe_view.default", "flatten.using_ints", "unflatten.int")
)
SAME = frozenset(
    f"aten.{name}"
    for name in ("clone.default", "contiguous.default", "alias.default", "detach.default", "lift_fresh_copy.default")
)
SQUEEZES = frozenset(f"aten.{name}" for name in ("unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims"))
PERMUTES = frozenset(
    f"aten.{name}" for name in ("permute.default", "transpose.int", "t.default", "mT.default", "numpy_T.default")
)
REPEATS = frozenset(("aten.repeat.default", "aten.tile.default"))
BROADCASTS = REPEATS | {"aten.expand.default", "aten.expand_as.default"}
INTERLEAVE = frozenset(("aten.repeat_interleave.self_int",))
LAYOUT_OPS = VIEWS | SAME | SQUEEZES | PERMUTES | BROADCASTS | INTERLEAVE


def tensor_type(value: Value) -> TensorType:
    """The tensor type of a value. Raises LayoutError for a host scalar or a tuple."""
    if not isinstance(value.type, TensorType):
        raise LayoutError(f"%{value.name} is not a tensor")
    return value.type


def source(op: Op) -> Value:
    """The tensor a layout op rearranges."""
    first = op.args[0] if op.args else op.kwargs.get("self")
    if not isinstance(first, Value):
        raise LayoutError(f"{op.name} has no tensor operand")
    return first


def is_contiguous_copy(op: Op) -> bool:
    """A copy that is contiguous whatever the strides of its input."""
    if op.name not in ("aten.clone.default", "aten.contiguous.default"):
        return False
    wanted = (
        op.arg(1, "memory_format", None) if op.name == "aten.contiguous.default" else op.kwargs.get("memory_format")
    )
    if wanted is None:
        return op.name == "aten.contiguous.default"
    return isinstance(wanted, Literal) and wanted.text == "contiguous_format"


def permutation(op: Op, rank: int) -> tuple[int, ...]:
    """For each result dimension the input dimension it comes from."""
    order = list(range(rank))
    if op.name == "aten.permute.default":
        dims = op.arg(1, "dims")
        if not isinstance(dims, tuple):
            raise LayoutError("permute without a list of dimensions")
        return tuple(_integer(d) % rank for d in dims)
    if op.name == "aten.transpose.int":
        first, second = _integer(op.arg(1, "dim0")) % rank, _integer(op.arg(2, "dim1")) % rank
    elif op.name == "aten.numpy_T.default":
        return tuple(reversed(order))
    else:
        first, second = rank - 2, rank - 1
    if rank >= 2:
        order[first], order[second] = order[second], order[first]
    return tuple(order)


def to_input(op: Op, coords: Coords) -> tuple[Value, Coords]:
    """The input of a layout op and its coordinates, given those of the result. Raises LayoutError on a mismatch."""
    with _at(op):
        return _to_input(op, coords)


def to_result(op: Op, coords: Coords) -> Coords:
    """The coordinates of a layout op's result, given those of its input; broadcasting ops must not broadcast.

    Raises LayoutError on a mismatch.
    """
    with _at(op):
        return _to_result(op, coords)


@contextlib.contextmanager
def _at(op: Op) -> Iterator[None]:
    """Let a LayoutError know where it happened."""
    try:
        yield
    except LayoutError as error:
        error.op = error.op or op
        raise


def _to_input(op: Op, coords: Coords) -> tuple[Value, Coords]:
    value = source(op)
    shape = tensor_type(value).shape
    if op.name in SAME:
        return value, coords
    if op.name in VIEWS or op.name in SQUEEZES:
        return value, regroup(flatten(coords), shape)
    if op.name in PERMUTES:
        inverse = list(coords)
        for position, origin in enumerate(permutation(op, len(shape))):
            inverse[origin] = coords[position]
        return value, tuple(inverse)
    if op.name in INTERLEAVE:
        return value, _interleaved(op, coords, shape)
    if op.name in REPEATS:
        return value, _repeated(op, coords, shape)
    if op.name in BROADCASTS:
        offset = len(coords) - len(shape)
        return value, tuple(() if is_one(n) else coords[offset + i] for i, n in enumerate(shape))
    raise LayoutError(f"{op.name} is not a layout op")


def _to_result(op: Op, coords: Coords) -> Coords:
    result = tensor_type(op.result).shape
    if op.name in SAME:
        return coords
    if op.name in VIEWS or op.name in SQUEEZES:
        return regroup(flatten(coords), result)
    if op.name in PERMUTES:
        return tuple(coords[i] for i in permutation(op, len(coords)))
    if op.name == "aten.expand.default":
        shape = tensor_type(source(op)).shape
        offset = len(result) - len(shape)
        if all(is_one(n) for n in result[:offset]) and all(map(equal, shape, result[offset:])):
            return ((),) * offset + coords
    raise LayoutError(f"{op.name} changes more than the layout")


def _integer(arg: object) -> int:
    if not isinstance(arg, int):
        raise LayoutError("a dimension number that is not a constant")
    return arg


def _interleaved(op: Op, coords: Coords, shape: tuple[Dim, ...]) -> Coords:
    dim = op.arg(2, "dim")
    if dim is None:
        raise LayoutError("repeat_interleave over the flattened tensor")
    at = _integer(dim) % len(shape)
    return (*coords[:at], _outer_part(coords[at], shape[at]), *coords[at + 1 :])


def _repeated(op: Op, coords: Coords, shape: tuple[Dim, ...]) -> Coords:
    offset = len(coords) - len(shape)
    result = tensor_type(op.result).shape
    parts: list[tuple[Axis, ...]] = []
    for i, length in enumerate(shape):
        dim = coords[offset + i]
        if is_one(length):
            parts.append(())
        elif equal(length, result[offset + i]):
            parts.append(dim)
        else:
            count = divide(result[offset + i], length)
            if count is None:
                raise LayoutError("repeat by a count that is not a factor")
            parts.append(regroup(dim, (count, length))[1])
    return tuple(parts)


def _outer_part(dim: tuple[Axis, ...], length: Dim) -> tuple[Axis, ...]:
    """The axes of a dimension that remain when every index is repeated: its leading part of the given length."""
    if is_one(length):
        return ()
    leaves = [leaf for axis in dim for leaf in axis.leaves()]
    group: list[Axis] = []
    wanted: Dim = length
    while not is_one(wanted):
        if not leaves:
            raise LayoutError("repeat_interleave with a length that does not divide")
        axis = leaves.pop(0)
        remaining = divide(wanted, axis.length)
        if remaining is None:
            axis, _ = split(axis, wanted)
            remaining = 1
        group.append(axis)
        wanted = remaining
    return tuple(group)
