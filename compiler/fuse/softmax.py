"""The softmax, and what happens to its weights before they meet V."""

from __future__ import annotations

from dataclasses import dataclass

from attnc.compiler.fuse import pointwise as pw
from attnc.compiler.fuse.axes import Coords, resolve
from attnc.compiler.fuse.builder import ScoreBuilder
from attnc.compiler.fuse.contraction import Contraction, contraction
from attnc.compiler.fuse.layout import LAYOUT_OPS, tensor_type, to_result
from attnc.compiler.fuse.reject import Reject
from attnc.ir import score as sc
from attnc.ir.graph import Graph
from attnc.ir.types import DType, TensorType
from attnc.ir.values import Op, Value

SOFTMAXES = frozenset(("aten.softmax.int", "aten._softmax.default", "aten._safe_softmax.default"))


def softmax_axis(op: Op) -> int:
    """The dimension a softmax normalises over, not negative. Raises Reject where it isn't a constant."""
    dim = op.arg(1, "dim")
    if not isinstance(dim, int):
        raise Reject("ATTNC-SOFTMAX-AXIS", "the softmax dimension is not a constant", op)
    return dim % tensor_type(op.result).rank


@dataclass
class Weights:
    """The softmax output followed forward, up to the contraction over keys."""

    op: Op
    """The contraction P·V."""
    form: Contraction
    value: Value
    """P as the contraction reads it."""
    coords: Coords
    factor: sc.Node | None = None
    zero_dead_rows: bool = False


def follow_weights(graph: Graph, softmax: Op, coords: Coords, builder: ScoreBuilder) -> Weights:
    """Follow the weights to the contraction with V.

    Raises Reject where they have another reader, meet an op that isn't understood, or never meet a contraction.
    """
    value, factor = softmax.result, None
    zero_dead = softmax.name == "aten._safe_softmax.default"
    while True:
        user, guard = _only_user(graph, value, softmax)
        form = contraction(user)
        if form is not None:
            return Weights(user, form, value, resolve(coords), factor, zero_dead)
        if guard or _is_nan_to_zero(user):
            if factor is not None:
                raise Reject("ATTNC-WEIGHTS-OP", "NaN is replaced after a factor that may have made it", user)
            zero_dead = True
        elif user.name in LAYOUT_OPS:
            coords = to_result(user, coords)
        elif not (pw.is_identity_dropout(user) or _is_float_cast(user)):
            step = _factor(user, value, coords, builder)
            factor = step if factor is None else sc.binary("mul", factor, step)
        value = user.result


def _only_user(graph: Graph, value: Value, softmax: Op) -> tuple[Op, bool]:
    """The one reader of ``value``, and whether it is a guard that turns NaN into 0."""
    users = value.users
    guards = [user for user in users if user.name == "aten.isnan.default"]
    rest = [user for user in users if user not in guards]
    escaped = value in graph.output_values()
    if len(rest) == 1 and not escaped:
        user = rest[0]
        guarded = bool(guards) and all(set(g.result.users) == {user} for g in guards)
        if guarded and _replaces_nan(user, value, guards):
            return user, True
        if not guards:
            return user, False
    if not any(_meets_contraction(user) for user in rest):
        raise Reject("ATTNC-NOT-ATTENTION", "the weights never meet a contraction with V", softmax)
    where = "are an output of the graph" if escaped else f"have {len(users)} readers"
    raise Reject("ATTNC-WEIGHTS-USED", f"the attention weights {where}, so they must exist", softmax)


def _is_nan_to_zero(op: Op) -> bool:
    """``nan_to_num`` that puts 0 for NaN; weights hold no infinity."""
    return op.name == "aten.nan_to_num.default" and op.arg(1, "nan") in (None, 0, 0.0)


def _replaces_nan(user: Op, value: Value, guards: list[Op]) -> bool:
    flags = {guard.result for guard in guards}
    if user.name in pw.FILLS:
        return user.args[0] is value and user.args[1] in flags and user.args[2] in (0, 0.0)
    if user.name in pw.WHERES:
        return user.args[0] in flags and user.args[2] is value and _is_zero(user.args[1])
    return False


def _is_zero(arg: object) -> bool:
    if isinstance(arg, int | float):
        return arg == 0
    op = arg.op if isinstance(arg, Value) else None
    if op is None:
        return False
    number = {"aten.scalar_tensor.default": 0, "aten.full.default": 1}.get(op.name)
    if number is not None:
        return op.args[number] in (0, 0.0)
    return op.name in ("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default")


def _is_float_cast(op: Op) -> bool:
    return op.name in pw.CASTS and tensor_type(op.result).dtype.is_float


def _meets_contraction(op: Op, depth: int = 8) -> bool:
    """Whether a contraction lies ahead along ops that keep the weights' meaning."""
    if contraction(op) is not None:
        return True
    known = pw.POINTWISE | LAYOUT_OPS | pw.DROPOUTS | {"aten.nan_to_num.default", "aten.slice.Tensor"}
    if depth == 0 or op.name not in known:
        return False
    return any(_meets_contraction(user, depth - 1) for result in op.results for user in result.users)


def _factor(op: Op, value: Value, coords: Coords, builder: ScoreBuilder) -> sc.Node:
    """The factor a pointwise op puts on each weight. Raises Reject for any other op."""
    if op.name in pw.DROPOUTS:
        raise Reject("ATTNC-DROPOUT", "the weights go through dropout in training mode", op)
    code = "ATTNC-WEIGHTS-OP" if _meets_contraction(op) else "ATTNC-NOT-ATTENTION"
    if not isinstance(op.results[0].type, TensorType) or op.results[0].type.shape != tensor_type(value).shape:
        raise Reject(code, f"{op.name} on the attention weights changes their shape", op)
    dtype = DType.F32
    kind = pw.BINARY.get(op.name)
    if kind == "mul":
        other = op.args[1] if op.args[0] is value else op.args[0]
        if other is not value:
            return builder.aside(other, coords, dtype)
    if kind == "div" and op.args[0] is value and op.args[1] is not value:
        return sc.binary("div", sc.const(1.0, dtype), builder.aside(op.args[1], coords, dtype), dtype)
    one, zero = sc.const(1.0, dtype), sc.const(0.0, dtype)
    if op.name in pw.FILLS and op.args[0] is value and op.args[2] in (0, 0.0):
        return sc.where(builder.condition(op.args[1], coords), zero, one)
    if op.name in pw.WHERES and op.args[1] is value and _is_zero(op.args[2]):
        return sc.where(builder.condition(op.args[0], coords), one, zero)
    if op.name in pw.WHERES and op.args[2] is value and _is_zero(op.args[1]):
        return sc.where(builder.condition(op.args[0], coords), zero, one)
    raise Reject(code, f"{op.name} on the attention weights is not understood", op)
