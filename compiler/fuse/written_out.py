"""A softmax written out: exponentials over their sum, however the maximum, the sum and the division are spelled.

For e = exp(s − m), where m doesn't depend on the key, and a sum Z = Σ e:

- ``e / Z`` is softmax(s), whatever m is; so are ``e · (1/Z)``, ``exp(s − logsumexp(s))`` and ``exp(log_softmax(s))``.
- ``(e @ V) / Z`` is softmax(s) @ V: the product is linear, and Z is the same for every feature.
- ``e / (Z + exp(x − m))`` has x as a sink; ``Z + exp(−m)``, or ``1 + Z`` without m, is the sink 0 (softmax-plus-one,
  Miller 2023, https://www.evanmiller.org/attention-is-off-by-one.html).
- Where m is the maximum, Z ≥ 1 in a row that sees a key, so that ``max(Z, c)`` with c ≤ 1 and ``Z + c`` with
  c ≤ 2⁻²⁶ (below half a unit in the last place of 1 in float32) leave it alone and only keep dead rows from 0 / 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from attnc.compiler.fuse import pointwise as pw
from attnc.compiler.fuse.axes import equal, is_one
from attnc.compiler.fuse.contraction import contraction
from attnc.compiler.fuse.forms import (
    EXTREMES,
    Division,
    SoftmaxForm,
    dimension,
    keeps_dimension,
    row_reduction,
    same_shape,
)
from attnc.compiler.fuse.layout import LAYOUT_OPS, SAME, tensor_type
from attnc.compiler.fuse.reach import Reach
from attnc.compiler.fuse.reject import Reject
from attnc.ir.graph import Graph
from attnc.ir.types import TensorType
from attnc.ir.values import Arg, Op, Value

EXP = "aten.exp.default"
LOG_SOFTMAXES = frozenset(("aten.log_softmax.int", "aten._log_softmax.default"))
SUMS = frozenset(("aten.sum.dim_IntList",))
LOGSUMEXP = frozenset(("aten.logsumexp.default",))
ADDS = frozenset(name for name, kind in pw.BINARY.items() if kind == "add")
DIVIDES = frozenset(name for name, kind in pw.BINARY.items() if kind == "div")
MULTIPLIES = frozenset(name for name, kind in pw.BINARY.items() if kind == "mul")
RECIPROCAL = "aten.reciprocal.default"
NEGLIGIBLE = 2.0**-26
UNSHARED = "Let the sum and the division alone read them; compute them once more for what else needs them."
_TOWARDS_DIVISION = ADDS | pw.CLAMPS | pw.CASTS | pw.WHERES | pw.FILLS | SAME | LAYOUT_OPS


def written_softmax(graph: Graph, op: Op, reaches: Reach) -> SoftmaxForm | None:
    """The softmax whose exponential is ``op``, an ``aten.exp``; None where ``op`` belongs to no softmax of scores.

    Raises Reject where it does (it is divided by its own sum) in a way that isn't understood.
    """
    argument = op.operands[0]
    if not isinstance(argument.type, TensorType) or not argument.type.dtype.is_float:
        return None
    form = _of_log(op, argument)
    if form is not None:
        return form if reaches(form.scores) else None
    return _of_sum(graph, op, argument) if reaches(argument) else None


def _of_log(op: Op, scores: Value) -> SoftmaxForm | None:
    """``exp(log_softmax(s))`` and ``exp(s − logsumexp(s))``."""
    inner, dtype = scores.op, tensor_type(op.result).dtype
    if inner is None:
        return None
    if inner.name in LOG_SOFTMAXES:
        axis = dimension(inner.arg(1, "dim"), tensor_type(scores).rank)
        step = "the exponential of a log-softmax is the softmax"
        return None if axis is None else SoftmaxForm(op, inner.operands[0], axis, op.result, dtype, steps=(step,))
    if inner.name != "aten.sub.Tensor" or inner.arg(2, "alpha", 1) != 1 or len(inner.operands) != 2:
        return None
    left, right = inner.operands
    for axis in range(tensor_type(left).rank):
        total = row_reduction(right, axis, tensor_type(left).rank, LOGSUMEXP)
        if total is not None and total.operands[0] is left:
            step = "exp(s − logsumexp(s)) is the softmax of s"
            return SoftmaxForm(op, left, axis, op.result, dtype, steps=(step,))
    return None


@dataclass(frozen=True)
class _Exponentials:
    """e = exp(scores − top), zero where masked; ``total`` sums it along ``axis``."""

    op: Op
    scores: Value
    top: Value | None
    exact: bool
    """``top`` is the maximum of ``scores``, and not of the scores at some earlier point."""
    value: Value
    masks: tuple[tuple[Value, bool], ...]
    total: Op
    axis: int


def _of_sum(graph: Graph, op: Op, shifted: Value) -> SoftmaxForm | None:
    value, masks = _masked(graph, op.result)
    total = next((user for user in _readers(value) if user.name in SUMS), None)
    axis = None if total is None else summed_axis(total)
    if total is None or axis is None or not _divides(total.result):
        return None
    scores, top, exact = _shift(shifted, axis)
    if top is None and _subtracts_row(shifted, axis):
        reason = "what is subtracted from the scores is not their maximum"
        edit = f"Subtract the maximum of the scores, s.amax({axis - _rank(shifted)}, keepdim=True), or nothing."
        raise Reject("ATTNC-SOFTMAX-FORM", reason, shifted.op, edit=edit)
    found = _Exponentials(op, scores, top, exact, value, masks, total, axis)
    denominator = _denominator(graph, found)
    form = _early(found, denominator) or _late(found, denominator)
    if form is None:
        reason = "the exponentials or their sum have a reader besides the sum and one division"
        raise Reject("ATTNC-SOFTMAX-FORM", reason, _other_reader(found, denominator), edit=UNSHARED)
    return form


def _rank(value: Value) -> int:
    return tensor_type(value).rank


def _other_reader(e: _Exponentials, z: _Denominator) -> Op:
    """A reader of the exponentials or of their sum that belongs to no softmax; the exponential where there is none."""
    readers = [*(op for op in _readers(e.value) if op is not e.total), *_readers(z.value)]
    return next((op for op in readers if op.name not in DIVIDES and contraction(op) is None), e.op)


def _divides(total: Value, depth: int = 6) -> bool:
    """Whether the sum ends up below a division."""
    for user in total.users:
        if user.name == RECIPROCAL or (user.name in DIVIDES and user.args[1] is total):
            return True
        if depth and user.name in _TOWARDS_DIVISION and _divides(user.result, depth - 1):
            return True
    return False


def _shift(shifted: Value, axis: int) -> tuple[Value, Value | None, bool]:
    """(s, m, whether m is the maximum of s) of ``s − m``; (the value, None, False) where no maximum is subtracted."""
    op = shifted.op
    if op is not None and op.name == "aten.sub.Tensor" and op.arg(2, "alpha", 1) == 1 and len(op.operands) == 2:
        left, right = op.operands
        top = row_reduction(right, axis, tensor_type(shifted).rank, EXTREMES)
        if top is not None and same_shape(left, shifted):
            return left, right, top.operands[0] is left
    return shifted, None, False


def _masked(graph: Graph, value: Value) -> tuple[Value, tuple[tuple[Value, bool], ...]]:
    """The exponentials after selects that put 0 for some of them, with the conditions."""
    masks: list[tuple[Value, bool]] = []
    while len(value.users) == 1 and value not in graph.output_values():
        op = value.users[0]
        condition = op.args[1] if op.name in pw.FILLS else op.args[0] if op.name in pw.WHERES else None
        if not isinstance(condition, Value):
            break
        if op.name in pw.FILLS and op.args[0] is value and pw.is_zero(op.args[2]):
            masks.append((condition, True))
        elif op.name in pw.WHERES and op.args[1] is value and pw.is_zero(op.args[2]):
            masks.append((condition, False))
        elif op.name in pw.WHERES and op.args[2] is value and pw.is_zero(op.args[1]):
            masks.append((condition, True))
        else:
            break
        value = op.result
    return value, tuple(masks)


def _readers(value: Value) -> list[Op]:
    """The readers of a value, those of its float casts among them."""
    found = []
    for user in value.users:
        found += _readers(user.result) if pw.is_float_cast(user) else [user]
    return found


def summed_axis(total: Op) -> int | None:
    """The one dimension a sum runs over, else None."""
    dims = total.arg(1, "dim")
    rank = tensor_type(total.operands[0]).rank
    return dimension(dims[0], rank) if isinstance(dims, tuple) and len(dims) == 1 else None


def _subtracts_row(value: Value, axis: int) -> bool:
    """Whether something of the rows, not known to be their maximum, is subtracted: it may cancel the scores."""
    op = value.op
    if op is None or op.name != "aten.sub.Tensor":
        return False
    right = op.args[1]
    if not isinstance(right, Value) or not isinstance(right.type, TensorType):
        return False
    rank = tensor_type(value).rank
    return right.type.rank == rank and is_one(right.type.shape[axis])


# -- the denominator ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Denominator:
    value: Value
    keepdim: bool
    """It has length 1 along the summed axis; else it lacks that dimension."""
    sink: Value | float | None = None
    sink_keepdim: bool = True
    guarded: bool = False


def _denominator(graph: Graph, e: _Exponentials) -> _Denominator:
    """Follow the sum through what is added to it, up to the division. Raises Reject."""
    found = _Denominator(e.total.result, keeps_dimension(e.total))
    while True:
        op = _step(found.value)
        if op is None:
            return found
        if op.name in ADDS and op.arg(2, "alpha", 1) == 1:
            found = _added(e, found, op)
        elif op.name in pw.CLAMPS:
            found = _clamped(e, found, op)
        elif op.name == "aten.unsqueeze.default":
            at = dimension(op.arg(1, "dim"), tensor_type(op.result).rank)
            if found.keepdim or at != e.axis:
                return found
            found = replace(found, keepdim=True)
        elif not (pw.is_float_cast(op) or op.name in SAME):
            return found
        if found.value in graph.output_values():
            reason = "the sum of the exponentials is an output of the graph"
            raise Reject("ATTNC-SOFTMAX-FORM", reason, op, edit=UNSHARED)
        found = replace(found, value=op.result)


def _step(value: Value) -> Op | None:
    """The one reader that goes on to the division; None at the division itself."""
    known = ADDS | pw.CLAMPS | pw.CASTS | SAME | {"aten.unsqueeze.default"}
    return value.users[0] if len(value.users) == 1 and value.users[0].name in known else None


def _added(e: _Exponentials, found: _Denominator, op: Op) -> _Denominator:
    other = op.args[1] if op.args[0] is found.value else op.args[0]
    if found.sink is not None:
        reason, edit = "two terms are added to the sum of the exponentials", "Add one: torch.logaddexp(a, b).exp()."
        raise Reject("ATTNC-SOFTMAX-FORM", reason, op, edit=edit)
    if isinstance(other, int | float):
        if e.top is None and other > 0:
            return replace(found, sink=math.log(other))
        if e.exact and 0 <= other <= NEGLIGIBLE:
            return replace(found, guarded=True)
        reason = f"{other:g} added to the sum of the exponentials changes the weights"
        raise Reject("ATTNC-SOFTMAX-FORM", reason, op, edit=_addend_edit(e, other))
    sink = _sink(e, other)
    if sink is None:
        reason = "what is added to the sum of the exponentials is no exponential"
        edit = "Add an exponential with the same maximum subtracted, exp(sink - m), or nothing."
        raise Reject("ATTNC-SOFTMAX-FORM", reason, op, edit=edit)
    return replace(found, sink=sink, sink_keepdim=found.keepdim)


def _addend_edit(e: _Exponentials, other: float) -> str:
    if other < 0.5:
        return f"Add at most 1e-8, which guards against 0 / 0, to a sum of exp(s - max(s)); {other:g} is too much."
    logit = "" if other == 1 else f"{math.log(other):.4g} "
    return f"Subtract no maximum, or add it shifted as the scores are: exp({logit}- m) with m the maximum."


def _sink(e: _Exponentials, other: Arg) -> Value | float | None:
    """x of ``exp(x − m)``; 0 of ``exp(−m)``; without a maximum, x of ``exp(x)``."""
    while isinstance(other, Value) and other.op is not None and (pw.is_float_cast(other.op) or other.op.name in SAME):
        other = other.op.operands[0]
    op = other.op if isinstance(other, Value) else None
    if op is None or op.name != EXP:
        return None
    logit = op.operands[0]
    if e.top is None:
        return logit
    inner = logit.op
    if inner is not None and inner.name == "aten.neg.default" and inner.operands[0] is e.top:
        return 0.0
    if inner is not None and inner.name == "aten.sub.Tensor" and inner.args[1] is e.top:
        left = inner.args[0]
        return left if isinstance(left, Value) else float(left) if isinstance(left, int | float) else None
    if inner is not None and inner.name in ("aten.rsub.Scalar",) and inner.args[0] is e.top:
        return float(inner.args[1]) if isinstance(inner.args[1], int | float) else None
    return None


def _clamped(e: _Exponentials, found: _Denominator, op: Op) -> _Denominator:
    low, high = pw.clamp_bounds(op)
    if not e.exact or found.sink is not None or high is not None or not isinstance(low, int | float) or low > 1:
        reason = "a clamp of the sum of the exponentials may change the weights"
        edit = "Subtract the maximum first and clamp from below at 1 or less, as a guard against 0 / 0; or don't clamp."
        raise Reject("ATTNC-SOFTMAX-FORM", reason, op, edit=edit)
    return replace(found, guarded=True)


# -- the division ------------------------------------------------------------------------------------------------------


def _early(e: _Exponentials, z: _Denominator) -> SoftmaxForm | None:
    """``e / Z``, or ``e · (1/Z)``, as the only other reader of the exponentials."""
    readers = [op for op in _readers(e.value) if op is not e.total]
    if len(readers) != 1 or not z.keepdim or not _spans(e.value, z.value, e.axis):
        return None
    op = readers[0]
    by_sum = op.name in DIVIDES and op.args[1] is z.value
    by_inverse = op.name in MULTIPLIES and any(_is_inverse(arg, z.value) for arg in op.args[:2])
    if not (by_sum or by_inverse) or not same_shape(op.result, e.value):
        return None
    return _form(e, z, op.result)


def _late(e: _Exponentials, z: _Denominator) -> SoftmaxForm | None:
    """The division stands after the product with V, where the match checks it; only the sum reads Z besides."""
    if not _only_divides(z.value):
        return None
    if any(op.name in DIVIDES for op in _readers(e.value)):
        reason = "the sum the exponentials are divided by lies along other axes"
        edit = f"Keep the dimension of the sum: e.sum({e.axis - _rank(e.value)}, keepdim=True)."
        raise Reject("ATTNC-SOFTMAX-FORM", reason, e.total, edit=edit)
    form = _form(e, z, e.value)
    casts = [user for user in e.value.users if pw.is_float_cast(user) and all(u is e.total for u in user.result.users)]
    return replace(form, readers=frozenset((e.total, *casts)), division=Division(z.value, z.keepdim))


def _only_divides(total: Value) -> bool:
    """Whether one division is all that the sum goes to, through layout ops and casts."""
    while len(total.users) == 1:
        op = total.users[0]
        if op.name in DIVIDES:
            return op.args[1] is total
        if op.name not in LAYOUT_OPS and not pw.is_float_cast(op):
            return False
        total = op.result
    return False


def _form(e: _Exponentials, z: _Denominator, weights: Value) -> SoftmaxForm:
    steps = ["exponentials divided by their sum over the keys: a softmax"]
    if e.top is not None:
        steps.append("a maximum over the keys is subtracted first: softmax doesn't change with it")
    if z.sink is not None:
        steps.append("the sum has one more term than there are keys: a sink in the denominator")
    return SoftmaxForm(
        root=e.op,
        scores=e.scores,
        axis=e.axis,
        weights=weights,
        dtype=tensor_type(e.op.result).dtype,
        sink=z.sink,
        sink_keepdim=z.sink_keepdim,
        masks=e.masks,
        guards_dead_rows=z.guarded,
        steps=tuple(steps),
    )


def _is_inverse(arg: Arg, total: Value) -> bool:
    op = arg.op if isinstance(arg, Value) else None
    if op is None:
        return False
    if op.name == RECIPROCAL:
        return op.args[0] is total
    return op.name in DIVIDES and op.args[0] in (1, 1.0) and op.args[1] is total


def _spans(value: Value, total: Value, axis: int) -> bool:
    """Whether ``total`` has the shape of ``value`` with length 1 along ``axis``."""
    full, row = tensor_type(value).shape, tensor_type(total).shape
    if len(full) != len(row):
        return False
    return all(is_one(n) if i == axis else equal(n, m) for i, (m, n) in enumerate(zip(full, row, strict=True)))
