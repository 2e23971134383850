"""Operators whose result at a place is computed from their operands at that place."""

from __future__ import annotations

from collections.abc import Sequence

from attnc.compiler.derive.known import BATCH, TOKEN_AXIS, Dims, Kind, Known, Role, same_axis
from attnc.compiler.derive.refusal import LENGTH, MIXES, RANDOM
from attnc.compiler.derive.step import Rule, Step
from attnc.compiler.fuse.layout import tensor_type
from attnc.ir.types import DType

NAMES = (
    """add sub mul div neg pow exp exp2 log log2 log1p sqrt rsqrt reciprocal tanh sigmoid silu gelu relu relu6
    leaky_relu elu erf cos sin abs square clamp clamp_min clamp_max maximum minimum where masked_fill le lt ge gt eq
    ne __and__ __or__ bitwise_and bitwise_or bitwise_not bitwise_xor logical_not logical_and logical_or floor_divide
    remainder floor ceil round rsub softplus _to_copy to clone alias detach contiguous type_as polar fmod sign
    hardtanh mish hardswish hardsigmoid isnan isinf nan_to_num log_sigmoid logit expm1 sgn trunc atan2 copysign
    lift_fresh_copy real imag conj _conj _neg_view resolve_conj resolve_neg addcmul addcdiv lerp xlogy"""
).split()


def joined(step: Step, operands: Sequence[Known], rank: int) -> Known:
    """The broadcast of operands. Raises NotDerivable where two tokens, or a token and another's position, meet."""
    kind = step.kind(list(operands))
    dims = tuple(_dimension(step, operands, i - rank) for i in range(rank))
    if kind is Kind.TOKEN:
        for atom in (BATCH, TOKEN_AXIS):
            if sum(dim.count(atom) for dim in dims) > 1:
                raise step.refuse(MIXES, "values of two different places meet (a broadcast makes pairs)")
        if any(known.kind is Kind.LENGTH for known in operands):
            raise step.refuse(LENGTH, "a value that depends on the total length meets the tokens")
        if any(known.kind is Kind.REQUEST for known in operands):
            raise step.refuse(MIXES, "tokens meet what comes from the encoder outside attention")
    return Known(kind, dims)


def _dimension(step: Step, operands: Sequence[Known], place: int) -> tuple[int | str, ...]:
    """The axis of one dimension, counted from the back; those of operands must be the same."""
    found: tuple[int | str, ...] = ()
    for known in operands:
        dim = known.dims[place] if -place <= len(known.dims) else ()
        if not dim:
            continue
        if found and not same_axis(found, dim):
            raise step.refuse(MIXES, f"two different axes meet in one dimension: {_show(found)} and {_show(dim)}")
        found = dim if len(dim) > len(found) else found
    return found


def _show(dim: tuple[int | str, ...]) -> str:
    return "·".join(map(str, dim))


def pointwise(step: Step) -> Known:
    """The join of the operands."""
    operands = step.tensors()
    if any(known.role is not None for known in operands):
        return _with_role(step, operands[0])
    return joined(step, operands, len(step.shape))


def _with_role(step: Step, known: Known) -> Known:
    """Numbers of places: copies keep their role; slot // slots per token is the token's number."""
    if step.op.name.startswith("aten.floor_divide") and step.op.args[1] == slots(known.dims):
        return Known(known.kind, known.dims, Role.TOKEN_ORDER, known.source)
    if len(step.tensors()) == 1 and _holds(step, known.role):
        return known
    assert known.role is not None
    raise step.refuse(MIXES, f"{known.role.value} is computed with")


def _holds(step: Step, role: Role | None) -> bool:
    """Whether the dtype of the result tells all numbers of places apart; experts may be counted as floats."""
    kind = tensor_type(step.op.results[0])
    exact = kind.dtype.is_int and kind.dtype.bits >= 32
    return exact or (role is Role.SORTED and kind.dtype is DType.F32)


def slots(dims: Dims) -> int:
    """Of an order of routed slots: how many slots each token has."""
    atom = dims[0][0]
    return int(str(atom)[1:])


def like(step: Step) -> Known:
    """A constant in the shape of an operand."""
    return Known(Kind.UNIFORM, step.tensor(0).dims)


def copied(step: Step) -> Known:
    """``copy(target, source)``: the source's values in the target's shape."""
    target, source = step.tensor(0), step.tensor(1, "src")
    return joined(step, [Known(Kind.UNIFORM, target.dims), source], len(step.shape))


def dropout(step: Step) -> Known:
    """Dropout that drops nothing."""
    if step.op.arg(2, "train", False) is not False:
        raise step.refuse(RANDOM, "dropout in training mode")
    return step.tensor(0, "input")


RULES: dict[str, Rule] = {
    **{f"aten.{name}": pointwise for name in NAMES},
    "aten.max.other": pointwise,
    "aten.min.other": pointwise,
    **{f"aten.{name}": like for name in ("ones_like", "zeros_like", "full_like", "empty_like")},
    "aten.copy": copied,
    "aten.dropout": dropout,
}
