"""Operators that put the dimensions of a past in another order, and do nothing else."""

from __future__ import annotations

from attnc.compiler.derive.known import Known
from attnc.compiler.derive.rules.layout import permute, transpose
from attnc.compiler.derive.step import Step
from attnc.compiler.fuse.layout import tensor_type
from attnc.ir.types import Dim, TensorType, same_dim
from attnc.ir.values import Op, Value

SAME = frozenset(f"aten.{n}" for n in ("clone", "alias", "detach", "contiguous", "lift_fresh_copy"))
"""Operators that change nothing; casts to the same dtype change nothing either."""
_CASTS = frozenset(("aten._to_copy", "aten.to"))


def like(value: Value, other: Value, shape: list[Dim]) -> bool:
    """Whether a value has another's dtype, and a shape."""
    kind, wanted = tensor_type(value), tensor_type(other)
    if kind.dtype is not wanted.dtype or kind.rank != len(shape):
        return False
    return all(same_dim(a, b) for a, b in zip(kind.shape, shape, strict=True))


def rearranged(step: Step, known: Known) -> Known:
    """What is known of a rearranged value."""
    if step.op.name.startswith("aten.permute"):
        return permute(step)
    return transpose(step) if step.op.name.startswith("aten.transpose") else known


def order_of(step: Step, first: Value) -> tuple[int, ...] | None:
    """The order of dimensions that an op puts a value in; None where it does more."""
    op, kind = step.op, tensor_type(first)
    name = op.name.rpartition(".")[0]
    result = op.results[0].type
    order = list(range(kind.rank))
    if name in SAME or (name in _CASTS and isinstance(result, TensorType) and result.dtype is kind.dtype):
        return tuple(order)
    if name == "aten.transpose":
        a, b = step.dim(1, "dim0", kind.rank), step.dim(2, "dim1", kind.rank)
        order[a], order[b] = b, a
        return tuple(order)
    if name == "aten.permute":
        return step.dims(1, "dims", kind.rank)
    if name == "aten.slice" and isinstance(result, TensorType) and result.shape == kind.shape:
        return tuple(order) if _from_start(op) else None
    return None


def _from_start(op: Op) -> bool:
    return op.arg(2, "start") in (None, 0) and op.arg(4, "step", 1) == 1
