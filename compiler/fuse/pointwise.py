"""Pointwise aten ops and what they are called in a score DAG."""

from __future__ import annotations

from attnc.ir.types import TensorType
from attnc.ir.values import Arg, Literal, Op, Value

UNARY = {
    f"aten.{name}.default": name for name in ("tanh", "exp", "log", "sqrt", "rsqrt", "neg", "abs", "sigmoid", "erf")
}

BINARY = {
    f"aten.{name}": op
    for op, names in {
        "add": ("add.Tensor", "add.Scalar"),
        "sub": ("sub.Tensor", "sub.Scalar"),
        "rsub": ("rsub.Tensor", "rsub.Scalar"),
        "mul": ("mul.Tensor", "mul.Scalar"),
        "div": ("div.Tensor", "div.Scalar", "true_divide.Tensor", "true_divide.Scalar"),
        "max": ("maximum.default", "max.other"),
        "min": ("minimum.default", "min.other"),
    }.items()
    for name in names
}

CLAMPS = frozenset(("aten.clamp.default", "aten.clamp_min.default", "aten.clamp_max.default"))

WHERES = frozenset(f"aten.where.{overload}" for overload in ("self", "ScalarOther", "ScalarSelf", "Scalar"))

FILLS = frozenset(("aten.masked_fill.Scalar", "aten.masked_fill.Tensor"))

CASTS = frozenset(("aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.type_as.default"))

DROPOUTS = frozenset(("aten.dropout.default", "aten.native_dropout.default"))

AND = frozenset(("aten.logical_and.default", "aten.bitwise_and.Tensor", "aten.__and__.Tensor"))
OR = frozenset(("aten.logical_or.default", "aten.bitwise_or.Tensor", "aten.__or__.Tensor"))
NOT = frozenset(("aten.logical_not.default", "aten.bitwise_not.default"))

POINTWISE = frozenset(UNARY) | frozenset(BINARY) | CLAMPS | WHERES | FILLS | CASTS


def is_identity_dropout(op: Op) -> bool:
    """Dropout that drops nothing: p is 0, or not training."""
    return op.name in DROPOUTS and (op.arg(1, "p") in (0, 0.0) or op.arg(2, "train") is False)


def clamp_bounds(op: Op) -> tuple[Arg, Arg]:
    """The lower and upper bound of a clamp; None where there is none."""
    if op.name == "aten.clamp_min.default":
        return op.arg(1, "min"), None
    if op.name == "aten.clamp_max.default":
        return None, op.arg(1, "max")
    return op.arg(1, "min"), op.arg(2, "max")


def is_float_cast(op: Op) -> bool:
    """A cast to a float dtype."""
    return op.name in CASTS and isinstance(kind := op.results[0].type, TensorType) and kind.dtype.is_float


def is_plain_cast(op: Op) -> bool:
    """A cast that changes the dtype only: no move to another device, no new layout."""
    return not any(isinstance(a, Literal) and a.kind == "device" for a in (*op.args, *op.kwargs.values()))


def is_zero(arg: object) -> bool:
    """A number 0, or a tensor filled with it."""
    if isinstance(arg, int | float):
        return arg == 0
    op = arg.op if isinstance(arg, Value) else None
    if op is None:
        return False
    number = {"aten.scalar_tensor.default": 0, "aten.full.default": 1, "aten.full_like.default": 1}.get(op.name)
    if number is not None:
        return op.args[number] in (0, 0.0)
    return op.name in ("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default")
