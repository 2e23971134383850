"""A softmax however it is written: what is normalised, over which axis, and which value holds the weights.

One operator; the same after its maximum was subtracted; one with an extra column that is dropped again (a sink, Xiao
et al. 2023, https://arxiv.org/abs/2309.17453). Exponentials over their sum: :mod:`attnc.compiler.fuse.written_out`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from attnc.compiler.fuse import pointwise as pw
from attnc.compiler.fuse.axes import equal, is_one
from attnc.compiler.fuse.layout import SAME, tensor_type
from attnc.compiler.fuse.reject import Reject
from attnc.ir.graph import Graph
from attnc.ir.types import Dim, DType
from attnc.ir.values import Arg, Op, Value

SOFTMAXES = frozenset(("aten.softmax.int", "aten._softmax.default", "aten._safe_softmax.default"))
EXTREMES = frozenset(("aten.amax.default", "aten.max.dim", "aten.max.default"))
LAST = 2**62
"""Slice ends at least this large mean the end of the dimension."""


@dataclass(frozen=True)
class Division:
    """Exponentials divided after the product with V: ``total`` has length 1 along the keys, or lacks them."""

    total: Value
    keepdim: bool


@dataclass(frozen=True)
class SoftmaxForm:
    """weights = exp(scores) / (Σ_axis exp(scores) + exp(sink)), elementwise over the shape of ``scores``.

    ``masks`` are conditions (value, where it hides) under which a weight is 0 and no part of the sum. ``readers`` read
    the weights as part of the softmax itself. With ``division``, ``weights`` are not divided yet.
    """

    root: Op
    scores: Value
    axis: int
    weights: Value
    dtype: DType
    sink: Value | float | None = None
    sink_keepdim: bool = True
    masks: tuple[tuple[Value, bool], ...] = ()
    guards_dead_rows: bool = False
    readers: frozenset[Op] = frozenset()
    division: Division | None = None
    steps: tuple[str, ...] = ()


def named_softmax(graph: Graph, op: Op) -> SoftmaxForm:
    """The form of a softmax operator. Raises Reject where its dimension isn't a constant."""
    axis = softmax_axis(op)
    scores = op.args[0]
    dtype, guards = tensor_type(op.result).dtype, op.name == "aten._safe_softmax.default"
    if not isinstance(scores, Value):
        raise Reject("ATTNC-NOT-ATTENTION", "the softmax of a number", op)
    steps = []
    unshifted = without_shift(scores, axis)
    if unshifted is not scores:
        steps.append("a maximum over the keys is subtracted first: softmax doesn't change with it")
    column = _extra_column(unshifted, axis)
    kept = None if column is None else _kept(graph, op.result, axis, column)
    if column is None or kept is None:
        return SoftmaxForm(op, unshifted, axis, op.result, dtype, guards_dead_rows=guards, steps=tuple(steps))
    steps.append("a column is appended before the softmax and dropped after it: a sink in the denominator")
    return SoftmaxForm(op, column.scores, axis, kept, dtype, sink=column.sink, steps=tuple(steps))


def softmax_axis(op: Op) -> int:
    """The dimension a softmax normalises over, not negative. Raises Reject where it isn't a constant."""
    dim = op.arg(1, "dim")
    if not isinstance(dim, int):
        raise Reject("ATTNC-SOFTMAX-AXIS", "the softmax dimension is not a constant", op)
    return dim % tensor_type(op.result).rank


def without_shift(scores: Value, axis: int) -> Value:
    """``x`` of ``x − max(x)`` (maximum over at least ``axis``), else the value itself."""
    op = scores.op
    if op is None or op.name != "aten.sub.Tensor" or op.arg(2, "alpha", 1) != 1:
        return scores
    left, right = op.args[:2]
    if not isinstance(left, Value) or not isinstance(right, Value) or not same_shape(left, scores):
        return scores
    top = row_reduction(right, axis, tensor_type(left).rank, EXTREMES)
    return left if top is not None and top.operands[0] is left else scores


def row_reduction(value: Value, axis: int, rank: int, names: frozenset[str]) -> Op | None:
    """The reduction (one of ``names``) along ``axis`` behind a value that has length 1 there, or behind a scalar.

    Only copies, ``unsqueeze`` at the axis itself and guards against an infinite maximum may stand between, so that the
    value's other dimensions are those of what was reduced.
    """
    type = tensor_type(value)
    if type.rank not in (0, rank) or (type.rank and not is_one(type.shape[axis])):
        return None
    while (op := value.op) is not None and op.name not in names:
        if op.name in SAME or op.name in pw.CASTS or (op.name == "py.getitem" and op.args[1] == 0):
            value = op.operands[0]
        elif (guarded := _behind_guard(op)) is not None:
            value = guarded
        elif op.name == "aten.unsqueeze.default" and dimension(op.arg(1, "dim"), rank) == axis:
            value = op.operands[0]
        else:
            return None
    return op if op is not None and reduces(op, axis) else None


def reduces(op: Op, axis: int) -> bool:
    """Whether a reduction runs over ``axis`` and nothing else, or over the whole tensor (``max()``)."""
    if op.name == "aten.max.default":
        return True
    source, dims = tensor_type(op.operands[0]), op.arg(1, "dim")
    found = dims if isinstance(dims, tuple) else (dims,)
    return len(found) == 1 and dimension(found[0], source.rank) == axis


def keeps_dimension(op: Op) -> bool:
    """Whether a reduction keeps the reduced dimension with length 1."""
    return op.arg(2, "keepdim", False) is True


def dimension(arg: Arg, rank: int) -> int | None:
    """A constant dimension number counted from the front, else None."""
    return arg % rank if isinstance(arg, int) and rank else None


def same_shape(a: Value, b: Value) -> bool:
    """Whether two tensors provably have one shape."""
    first, second = tensor_type(a).shape, tensor_type(b).shape
    return len(first) == len(second) and all(map(equal, first, second))


def _behind_guard(op: Op) -> Value | None:
    """``m`` of ``where(m is infinite, 0, m)``, of ``masked_fill`` like it, of ``nan_to_num`` or a clamp."""
    if op.name == "aten.nan_to_num.default" or op.name in pw.CLAMPS:
        return op.operands[0]
    if op.name in pw.FILLS and _tests_infinity(op.args[1]):
        return op.operands[0]
    if op.name in pw.WHERES and _tests_infinity(op.args[0]):
        branches = [arg for arg in op.args[1:3] if isinstance(arg, Value) and same_shape(arg, op.result)]
        return branches[0] if len(branches) == 1 else None
    return None


def _tests_infinity(arg: Arg) -> bool:
    op = arg.op if isinstance(arg, Value) else None
    if op is None:
        return False
    if op.name in ("aten.isinf.default", "aten.isfinite.default", "aten.isneginf.default"):
        return True
    if op.name in pw.NOT:
        return _tests_infinity(op.args[0])
    return op.name in ("aten.eq.Scalar", "aten.ne.Scalar") and op.args[1] == -math.inf


# -- a column appended and dropped -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    scores: Value
    sink: Value | float
    first: bool
    """The column stands before the scores."""
    total: Dim


def _extra_column(value: Value, axis: int) -> _Column | None:
    """The scores and the extra logit of ``cat((scores, column), axis)`` or of ``pad(scores, (0, 1), value=number)``."""
    op = value.op
    if op is None:
        return None
    total = tensor_type(value).shape[axis]
    if op.name == "aten.cat.default":
        parts = op.args[0]
        if dimension(op.arg(1, "dim", 0), tensor_type(value).rank) != axis or not isinstance(parts, tuple):
            return None
        if len(parts) != 2 or not all(isinstance(part, Value) for part in parts):
            return None
        left, right = (part for part in parts if isinstance(part, Value))
        if is_one(tensor_type(right).shape[axis]):
            return _Column(left, right, False, total)
        return _Column(right, left, True, total) if is_one(tensor_type(left).shape[axis]) else None
    if axis == tensor_type(value).rank - 1 and (found := _padding(op)) is not None:
        pads, number = found
        if pads in ((0, 1), (1, 0)) and math.isfinite(number):
            return _Column(op.operands[0], number, pads == (1, 0), total)
    return None


def _padding(op: Op) -> tuple[Arg, float] | None:
    """The widths and the number of a constant padding."""
    if op.name == "aten.constant_pad_nd.default":
        number = op.arg(2, "value", 0)
    elif op.name == "aten.pad.default" and op.arg(2, "mode", "constant") == "constant":
        number = op.arg(3, "value")
    else:
        return None
    number = 0.0 if number is None else number
    return (op.args[1], float(number)) if isinstance(number, int | float) else None


def _kept(graph: Graph, weights: Value, axis: int, column: _Column) -> Value | None:
    """The weights without the extra column, where a slice that drops it is all that reads them."""
    value = weights
    while len(value.users) == 1 and value not in graph.output_values():
        op = value.users[0]
        if op.name == "aten.slice.Tensor":
            return op.result if _drops(op, axis, column) else None
        if op.name not in SAME and op.name not in pw.CASTS and not pw.is_identity_dropout(op):
            return None
        value = op.result
    return None


def _drops(op: Op, axis: int, column: _Column) -> bool:
    dim, start, end, step = (op.arg(i, name, default) for i, (name, default) in enumerate(_SLICE, start=1))
    if dimension(dim, tensor_type(op.result).rank) != axis or step != 1:
        return False
    if column.first:
        return start == 1 and (end is None or _length(end, LAST) or _length(end, column.total))
    return start in (None, 0) and (end == -1 or _length(end, column.total - 1))


_SLICE = (("dim", 0), ("start", None), ("end", None), ("step", 1))


def _length(arg: Arg, wanted: Dim) -> bool:
    if isinstance(arg, int):
        return arg >= LAST if wanted == LAST else bool(arg == wanted)
    if isinstance(arg, Value):
        expr = getattr(arg.type, "expr", None)
        return expr is not None and wanted != LAST and equal(expr, wanted)
    return False
