"""Where to drop the tokens whose logits nobody asked for: as early as every step behind is row by row."""

from __future__ import annotations

from attnc.compiler.derive.analysis import Analysis
from attnc.compiler.derive.known import BATCH, TOKEN_AXIS, Kind, Known
from attnc.ir.types import TensorType
from attnc.ir.values import Op, Value

_STOPS = ("attn.attention", "attn.rope")


def selection_point(analysis: Analysis) -> Value:
    """The earliest value [B, S, …] from which the logits follow through ops with no other token operand."""
    value = analysis.logits
    while (before := _single_operand(analysis, value)) is not None:
        value = before
    return value


def _single_operand(analysis: Analysis, value: Value) -> Value | None:
    """The one operand of a value's op that carries tokens, where the op works on its last dimension only."""
    op = value.op
    if op is None or op.name in _STOPS or not _keeps_rows(analysis.known(value)):
        return None
    carriers = [v for v in op.operands if _carries(analysis, v)]
    if len(carriers) != 1 or not _keeps_rows(analysis.known(carriers[0])) or _reads_sizes(op):
        return None
    return carriers[0]


def _carries(analysis: Analysis, value: Value) -> bool:
    """Whether a value has a place for each token: it is data of tokens, or a function of position."""
    known = analysis.known(value)
    return not isinstance(value.type, TensorType) or known is None or bool(known.symbolic) or known.kind is Kind.TOKEN


def _keeps_rows(known: Known | None) -> bool:
    """Whether a value is [B, S, features] of tokens."""
    if known is None or known.kind is not Kind.TOKEN or len(known.dims) != 3:
        return False
    return known.dims[:2] == ((BATCH,), (TOKEN_AXIS,))


def _reads_sizes(op: Op) -> bool:
    return any(not isinstance(v.type, TensorType) for v in op.operands)
