"""``scaled_dot_product_attention`` calls, read by their documented meaning (torch.nn.functional, top-left causal)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import sympy

from attnc.compiler.fuse.axes import Axis, Coords, LayoutError, equal, is_one, resolve, split
from attnc.compiler.fuse.builder import ScoreBuilder
from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.fuse.match import Match, Operand, name_axes
from attnc.compiler.fuse.reject import Reject
from attnc.compiler.fuse.site import MORE_KEYS, check_axes, check_lengths, score_axes, settle
from attnc.compiler.lift.lifter import Lifter
from attnc.ir import score as sc
from attnc.ir.types import Dim, DType, TensorType
from attnc.ir.values import Arg, Op, Value

SDPA = "aten.scaled_dot_product_attention.default"


@dataclass(frozen=True)
class Call:
    """The arguments of one call."""

    op: Op
    q: Value
    k: Value
    v: Value
    mask: Arg
    causal: bool
    scale: Arg
    grouped: bool

    @staticmethod
    def of(op: Op) -> Call:
        """Raises Reject for dropout, for arguments known only at run time and for ranks below 2."""
        q, k, v = (op.arg(i, name) for i, name in enumerate(("query", "key", "value")))
        if not isinstance(q, Value) or not isinstance(k, Value) or not isinstance(v, Value):
            raise Reject("ATTNC-SDPA-ARGUMENT", "q, k or v is not a tensor", op)
        if op.arg(4, "dropout_p", 0.0) not in (0, 0.0):
            p = op.arg(4, "dropout_p")
            reason = f"the attention weights go through dropout with p = {p}"
            raise Reject("ATTNC-DROPOUT", reason, op, edit="Pass dropout_p=0.0, as where the model isn't training.")
        causal, grouped = op.arg(5, "is_causal", False), op.arg(7, "enable_gqa", False)
        if not isinstance(causal, bool) or not isinstance(grouped, bool):
            edit = "Pass True or False for is_causal and enable_gqa."
            raise Reject("ATTNC-SDPA-ARGUMENT", "is_causal or enable_gqa is known only at run time", op, edit=edit)
        if min(tensor_type(x).rank for x in (q, k, v)) < 2:
            edit = "Give q, k and v dimensions for positions and features."
            raise Reject("ATTNC-SDPA-ARGUMENT", "q, k and v need two dimensions or more", op, edit=edit)
        return Call(op, q, k, v, op.arg(3, "attn_mask"), causal, op.arg(6, "scale"), grouped)


def match_sdpa(op: Op, lifter: Lifter, values: dict[str, Value]) -> Match:
    """The attention an SDPA call performs. Raises Reject."""
    call = Call.of(op)
    q, k, v = (tensor_type(x) for x in (call.q, call.k, call.v))
    for operand in (q, k, v):
        check_lengths(op, operand.shape)
    if is_one(k.shape[-2]):
        raise Reject("ATTNC-SINGLE-KEY", "there is a single key", op, edit=MORE_KEYS)
    shape: tuple[Dim, ...] = (*tensor_type(op.result).shape[:-1], k.shape[-2])
    roots = score_axes(shape, len(shape) - 1)
    key = roots[-1]

    def attempt(symbol: Callable[[Axis], sympy.Symbol], active: Lifter | None) -> Match:
        contracted = Axis(q.shape[-1], "d", atomic=True)
        feature = Axis(v.shape[-1], "e", atomic=True)
        heads = _shared_heads(call, roots)
        coords: Coords = resolve(tuple(() if is_one(axis.length) else (axis,) for axis in roots))
        batch, row = coords[:-2], coords[-2]
        builder = ScoreBuilder(key, symbol, active, values)
        q_op = Operand(call.q, (*_batch(batch, q), row, (contracted,))).peeled()
        k_op = Operand(call.k, (*_batch(heads(batch, k), k), (key,), (contracted,))).peeled()
        v_op = Operand(call.v, (*_batch(heads(batch, v), v), (key,), (feature,))).peeled()
        rows = tuple(axis for dim in resolve(coords) for axis in dim if axis is not key)
        check_axes(rows, op, q_op, k_op, v_op)
        return Match(
            root=op,
            result=op.result,
            q=q_op,
            k=k_op,
            v=v_op,
            out_coords=resolve((*batch, row, (feature,))),
            rows=rows,
            key=key,
            contracted=contracted,
            feature=feature,
            score=_score(call, builder, coords, symbol),
            sides=builder.sides,
            softmax_dtype=q.dtype,
            names=name_axes(rows, key, contracted, feature, q_op, k_op, v_op),
            zero_dead_rows=True,
            steps=[f"{op.name}: softmax(scale·Q·Kᵀ + mask)·V by definition", *builder.steps],
        )

    try:
        return settle(attempt, roots, lifter)
    except LayoutError as error:
        raise Reject("ATTNC-LAYOUT", str(error), error.op or op) from error


def _batch(batch: Coords, operand: TensorType) -> Coords:
    """Coordinates of an operand's batch dimensions, aligned right; a dimension of length 1 broadcasts."""
    shape = operand.shape[:-2]
    return tuple(() if is_one(n) else batch[len(batch) - len(shape) + i] for i, n in enumerate(shape))


def _shared_heads(call: Call, roots: list[Axis]) -> Callable[[Coords, TensorType], Coords]:
    """With ``enable_gqa``, query head h reads K/V head h // group: K and V keep the outer part of the head axis."""

    def shared(batch: Coords, operand: TensorType) -> Coords:
        if not call.grouped or not batch or operand.rank < 3:
            return batch
        head, heads = roots[-3], operand.shape[-3]
        if is_one(heads) or equal(head.length, heads):
            return batch
        if head.parts is None:
            split(head, heads)
        outer = head.leaves()[0]
        if not equal(outer.length, heads):
            raise LayoutError("K and V have different head counts")
        return (*batch[:-1], (outer,))

    return shared


def _score(call: Call, builder: ScoreBuilder, coords: Coords, symbol: Callable[[Axis], sympy.Symbol]) -> sc.Node:
    dtype = tensor_type(call.q).dtype
    node = sc.binary("mul", sc.qk(dtype), _scale(call, builder, dtype), dtype)
    blocked = sc.const(-math.inf, dtype)
    if call.mask is not None:
        if not isinstance(call.mask, Value):
            raise Reject("ATTNC-SDPA-ARGUMENT", "attn_mask is not a tensor", call.op)
        if tensor_type(call.mask).dtype is DType.B1:
            node = sc.where(builder.condition(call.mask, coords), node, blocked)
        else:
            node = sc.binary("add", node, builder.build(call.mask, coords, dtype), dtype)
    if call.causal:
        query = builder.indices((coords[-2],))[0]
        node = sc.where(sc.index(sympy.Le(builder.indices((coords[-1],))[0], query), DType.B1), node, blocked)
    return node


def _scale(call: Call, builder: ScoreBuilder, dtype: DType) -> sc.Node:
    if call.scale is not None:
        return builder.build(call.scale, (), dtype)
    length = tensor_type(call.q).shape[-1]
    if not isinstance(length, int):
        edit = "Pass the scale: scale=head_dim**-0.5."
        raise Reject("ATTNC-SDPA-ARGUMENT", "the default scale needs a constant head_dim", call.op, edit=edit)
    return sc.const(1 / math.sqrt(length), dtype)
