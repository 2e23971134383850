"""The ``attn`` dialect: what attnc adds to a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attnc.ir.attention import AttentionSpec
from attnc.ir.opdef import Attribute, OpDef, Operand, Result
from attnc.ir.ops.attention_rules import infer_attention, verify_attention
from attnc.ir.types import Dim, TensorType, Type, same_dim
from attnc.ir.values import Arg, Op, Value

ROPE_STYLES = ("half", "interleaved")

ATTENTION = OpDef(
    name="attn.attention",
    summary="one attention: softmax over keys of a score formula, contracted with values",
    operands=(
        Operand("q", "tensor", "queries, dimensions named by q_axes"),
        Operand("k", "tensor", "keys, dimensions named by k_axes"),
        Operand("v", "tensor", "values, dimensions named by v_axes"),
        Operand("sides", "tensors", "tensors that formulas load, t0, t1, … in this order"),
        Operand("sizes", "list", "host ints, the values of the spec's sizes in this order"),
    ),
    attributes=(Attribute("spec", AttentionSpec, "axes, formulas and softmax form"),),
    results=(
        Result("out", "the result in out_axes order, contiguous, dtype out_dtype"),
        Result("lse", "f32 log-sum-exp over out_axes without e, where the spec returns it", optional=True),
    ),
    verify=verify_attention,
    infer=infer_attention,
    doc=(
        "`out[outer, q, e] = Σ_k softmax_k(score) · weight · v[outer, k, e]` over every key, with the score as the "
        "source wrote it. `mask` says which keys count in a row that has a visible key; there `visible` equals "
        "`score`. An axis an operand lacks is a broadcast over it."
    ),
)


def _verify_rope(op: Op) -> Iterator[str]:
    x, result, rotated = _tensor_type(op.args[0]), op.result.type, op.attrs["rotary_dim"]
    positions, frequencies, tables = (_tensor_types(arg) for arg in (*op.args[1:], ())[:3])
    if op.attrs["style"] not in ROPE_STYLES:
        yield f"style {op.attrs['style']!r} is none of {', '.join(ROPE_STYLES)}"
    if x.rank == 0 or not x.dtype.is_float:
        yield "x must be a float tensor of rank 1 or more"
        return
    if rotated <= 0 or rotated % 2 or (isinstance(x.shape[-1], int) and rotated > x.shape[-1]):
        yield f"rotary_dim {rotated} must be even, positive and at most x's last dimension {x.shape[-1]}"
    if tables and (positions or frequencies or len(tables) != 2):
        yield "tables are two, cosines and sines, and stand in place of positions and inv_freqs"
    elif not tables and (not positions or len(positions) != len(frequencies)):
        yield "positions and inv_freqs must be lists of one length, at least 1"
    for frequency in frequencies:
        if not frequency.dtype.is_float or frequency.rank != 1 or frequency.shape[0] * 2 != rotated:
            yield f"inv_freqs must be float and have one dimension of length rotary_dim / 2 = {rotated // 2}"
    for position in positions:
        if position.dtype.is_complex or not _broadcasts(position.shape, x.shape[:-1]):
            yield "positions must be real and broadcast to x without its last dimension"
    for table in tables:
        if not table.dtype.is_float or table.rank == 0 or table.shape[-1] not in (rotated, rotated // 2):
            yield f"tables must be float and have {rotated // 2} or {rotated} features, for pairs or for features"
        elif not _broadcasts(table.shape[:-1], x.shape[:-1]):
            yield "tables must broadcast to x but for the last dimension"
    if not isinstance(result, TensorType) or not _same_shape(result.shape, x.shape):
        yield "the result must have x's shape"
    elif not result.dtype.is_float or result.dtype.bits < x.dtype.bits:
        yield "the result must have x's dtype or a wider float dtype"


def _tensor_type(arg: Arg) -> TensorType:
    assert isinstance(arg, Value) and isinstance(arg.type, TensorType)  # the signature was checked
    return arg.type


def _tensor_types(args: Arg) -> list[TensorType]:
    return [_tensor_type(arg) for arg in args] if isinstance(args, tuple) else []


def _broadcasts(shape: tuple[Dim, ...], target: tuple[Dim, ...]) -> bool:
    if len(shape) > len(target):
        return False
    return all(d == 1 or same_dim(d, t) for d, t in zip(reversed(shape), reversed(target), strict=False))


def _same_shape(x: tuple[Dim, ...], y: tuple[Dim, ...]) -> bool:
    return len(x) == len(y) and all(map(same_dim, x, y))


def _infer_rope(args: tuple[Arg, ...], attrs: Mapping[str, Any]) -> tuple[Type, ...]:
    x = args[0]
    if not isinstance(x, Value) or not isinstance(x.type, TensorType):
        raise ValueError("x is not a tensor")
    return (TensorType(x.type.dtype, x.type.shape, x.type.device, atoms=x.type.atoms),)


ROPE = OpDef(
    name="attn.rope",
    summary="rotary position embedding of the last dimension",
    operands=(
        Operand("x", "tensor", "float[..., D]"),
        Operand("positions", "tensors", "each broadcasts to x.shape[:-1], aligned at the right"),
        Operand("inv_freqs", "tensors", "for each position float[rotary_dim / 2], angle per position of each pair"),
        Operand("tables", "tensors", "cosines and sines instead, where both lists are empty", optional=True),
    ),
    attributes=(
        Attribute("style", str, "`half` pairs (i, i + rotary_dim/2), `interleaved` pairs (2i, 2i + 1)"),
        Attribute("rotary_dim", int, "how many leading features rotate; the rest pass through"),
        Attribute("attention_factor", float, "factor on cos and sin (1.0 but for some length scalings)"),
        Attribute("rounded", bool, "whether each position · frequency is rounded to f32, as a stored table's were"),
    ),
    results=(Result("out", "x's shape; x's dtype or a wider float dtype; dense, in the order its strides say"),),
    verify=_verify_rope,
    infer=_infer_rope,
    doc=(
        "Pair i, (x, y), at angle `a = Σ_n positions[n] · inv_freqs[n][i]` becomes `(x·c − y·s, y·c + x·s)` with "
        "`c = attention_factor · cos a` and `s = attention_factor · sin a`. One position is the usual case; vision "
        "models turn some pairs by the row and some by the column, and have zeros among their frequencies. An angle "
        "is computed in f64 where its position or frequencies are, else in f32; c and s are rounded to out's dtype.\n\n"
        "Where a program is given its cosines and sines (another graph made them), these are `tables`, each of shape "
        "`[…, rotary_dim / 2]`, one for each pair, or `[…, rotary_dim]`, one for each feature. They hold any numbers: "
        "with `C` and `S` of a feature, (x, y) becomes `(x·C₀ − y·S₀, y·C₁ + x·S₁)`."
    ),
)

OPS: tuple[OpDef, ...] = (ATTENTION, ROPE)
