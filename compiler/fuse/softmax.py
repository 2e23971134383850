"""What happens to the weights of a softmax before they meet V, and to the product where it is divided after."""

from __future__ import annotations

from dataclasses import dataclass

from attnc.compiler.fuse import pointwise as pw
from attnc.compiler.fuse.axes import Axis, Coords, broadcast, resolve
from attnc.compiler.fuse.builder import ScoreBuilder
from attnc.compiler.fuse.contraction import Contraction, contraction
from attnc.compiler.fuse.forms import SoftmaxForm
from attnc.compiler.fuse.layout import LAYOUT_OPS, tensor_type, to_input, to_result
from attnc.compiler.fuse.reject import Reject
from attnc.ir import score as sc
from attnc.ir.graph import Graph
from attnc.ir.types import DType, TensorType
from attnc.ir.values import Arg, Op, Value


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


def follow_weights(graph: Graph, form: SoftmaxForm, coords: Coords, builder: ScoreBuilder) -> Weights:
    """Follow the weights to the contraction with V.

    Raises Reject where they have another reader, meet an op that isn't understood, or never meet a contraction.
    """
    value, factor = form.weights, None
    zero_dead = form.guards_dead_rows
    while True:
        user, guard = _only_user(graph, value, form)
        product = contraction(user)
        if product is not None:
            return Weights(user, product, value, resolve(coords), factor, zero_dead)
        if guard or _is_nan_to_zero(user):
            if factor is not None:
                edit = "Replace NaN right after the softmax, before the factor."
                reason = "NaN is replaced after a factor that may have made it"
                raise Reject("ATTNC-WEIGHTS-OP", reason, user, edit=edit)
            zero_dead = True
        elif user.name in LAYOUT_OPS:
            coords = to_result(user, coords)
        elif not (pw.is_identity_dropout(user) or pw.is_float_cast(user)):
            step = _factor(user, value, coords, builder)
            factor = step if factor is None else sc.binary("mul", factor, step)
        value = user.result


def _only_user(graph: Graph, value: Value, form: SoftmaxForm) -> tuple[Op, bool]:
    """The one reader of ``value``, and whether it is a guard that turns NaN into 0."""
    users = [user for user in value.users if user not in form.readers]
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
        raise Reject("ATTNC-NOT-ATTENTION", "the weights never meet a contraction with V", form.root)
    raise _used(value, users, escaped, form)


def _used(value: Value, readers: list[Op], escaped: bool, form: SoftmaxForm) -> Reject:
    """The refusal of weights with another reader, which is its op."""
    where = "are an output of the graph" if escaped else f"have {len(readers)} readers"
    reason = f"the attention weights {where}, so they must exist"
    products = [user for user in readers if contraction(user) is not None]
    extra = next((user for user in readers if not _meets_contraction(user)), None)
    if escaped:
        op, edit = value.op, "Return the output only: output_attentions=False, need_weights=False."
    elif extra is None and len(products) == len(readers):
        op, edit = readers[-1], "Multiply the weights once, by both: w @ torch.cat((v1, v2), -1)."
    else:
        op, edit = extra or readers[-1], "Drop this reader, or give it weights of its own: softmax(scores) once more."
    return Reject("ATTNC-WEIGHTS-USED", reason, op or form.root, edit=edit, value=value)


def _is_nan_to_zero(op: Op) -> bool:
    """``nan_to_num`` that puts 0 for NaN; weights hold no infinity."""
    return op.name == "aten.nan_to_num.default" and op.arg(1, "nan") in (None, 0, 0.0)


def _replaces_nan(user: Op, value: Value, guards: list[Op]) -> bool:
    flags = {guard.result for guard in guards}
    if user.name in pw.FILLS:
        return user.args[0] is value and user.args[1] in flags and pw.is_zero(user.args[2])
    if user.name in pw.WHERES:
        return user.args[0] in flags and user.args[2] is value and pw.is_zero(user.args[1])
    return False


def _meets_contraction(op: Op, depth: int = 8) -> bool:
    """Whether a contraction lies ahead along ops that keep the weights' meaning."""
    if contraction(op) is not None:
        return True
    if depth == 0 or op.name not in _MAY_CARRY:
        return False
    return any(_meets_contraction(user, depth - 1) for result in op.results for user in result.users)


_CHANGED = ("nan_to_num", "reciprocal", "round", "floor", "ceil", "relu", "cumsum", "sort", "flip", "roll")
_MAY_CARRY = pw.POINTWISE | LAYOUT_OPS | pw.DROPOUTS | {f"aten.{name}.default" for name in _CHANGED}
_MAY_CARRY |= {"aten.slice.Tensor", "aten.pow.Tensor_Scalar", "py.getitem"}
"""Ops that may stand between a softmax and V, understood or not; a router's topk is none of them."""


def _factor(op: Op, value: Value, coords: Coords, builder: ScoreBuilder) -> sc.Node:
    """The factor a pointwise op puts on each weight. Raises Reject for any other op."""
    if op.name in pw.DROPOUTS:
        p = op.arg(1, "p")
        reason = f"the weights go through dropout with p = {p} in training mode"
        raise Reject("ATTNC-DROPOUT", reason, op, edit="Set this p to 0, or call model.eval().")
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
    if op.name in pw.FILLS and op.args[0] is value and pw.is_zero(op.args[2]):
        return sc.where(builder.condition(op.args[1], coords), zero, one)
    if op.name in pw.WHERES and op.args[1] is value and pw.is_zero(op.args[2]):
        return sc.where(builder.condition(op.args[0], coords), one, zero)
    if op.name in pw.WHERES and op.args[2] is value and pw.is_zero(op.args[1]):
        return sc.where(builder.condition(op.args[0], coords), zero, one)
    raise Reject(code, f"{op.name} on the attention weights is not understood", op)


def divided_product(
    graph: Graph, form: SoftmaxForm, product: Value, coords: Coords, weights: Coords, key: Axis
) -> tuple[Value, Coords]:
    """P·V after the division by the sum of the exponentials, where that comes after it; else as it is.

    ``coords`` are those of ``product``, ``weights`` those of the exponentials. Raises Reject where the product has
    another reader, or is divided by something else than the sum of its own row.
    """
    if form.division is None:
        return product, coords
    total, keepdim = form.division.total, form.division.keepdim
    row = tuple(() if key in dim else dim for dim in weights if keepdim or key not in dim)
    value = product
    while True:
        if len(value.users) != 1 or value in graph.output_values():
            edit = "Use the product with V only after its division by the sum."
            raise Reject(
                "ATTNC-SOFTMAX-FORM", "the product with V is read before it is divided by the sum", value.op, edit=edit
            )
        op = value.users[0]
        if pw.BINARY.get(op.name) == "div" and op.args[0] is value:
            break
        if op.name in LAYOUT_OPS:
            coords = to_result(op, coords)
        elif not pw.is_float_cast(op):
            reason = f"{op.name} stands between P·V and the division by the sum"
            raise Reject("ATTNC-SOFTMAX-FORM", reason, op, edit="Divide first: this op after the division.")
        value = op.result
    if tensor_type(op.result).rank != len(coords) or not _reads(op.args[1], total, coords, row):
        reason = "the product with V is not divided by the sum of its own row"
        edit = "Let the sum keep its dimension, so that it lies along the rows: e.sum(-1, keepdim=True)."
        raise Reject("ATTNC-SOFTMAX-FORM", reason, op, edit=edit)
    return op.result, coords


def _reads(value: Arg, wanted: Value, coords: Coords, row: Coords) -> bool:
    """Whether ``value`` at ``coords`` is ``wanted`` at ``row``, behind layout ops and casts."""
    if not isinstance(value, Value):
        return False
    coords = broadcast(coords, tensor_type(value).shape)
    while value is not wanted:
        op = value.op
        if op is None:
            return False
        if op.name in LAYOUT_OPS:
            value, coords = to_input(op, coords)
        elif pw.is_float_cast(op):
            value = op.operands[0]
        else:
            return False
    return resolve(coords) == resolve(row)
