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
    x, position, frequency = (a.type for a in op.args if isinstance(a, Value) and isinstance(a.type, TensorType))
    rotated = op.attrs["rotary_dim"]
    if op.attrs["style"] not in ROPE_STYLES:
        yield f"style {op.attrs['style']!r} is none of {', '.join(ROPE_STYLES)}"
    if x.rank == 0 or not x.dtype.is_float:
        yield "x must be a float tensor of rank 1 or more"
        return
    if rotated <= 0 or rotated % 2 or (isinstance(x.shape[-1], int) and rotated > x.shape[-1]):
        yield f"rotary_dim {rotated} must be even, positive and at most x's last dimension {x.shape[-1]}"
    if frequency.rank != 1 or frequency.shape[0] * 2 != rotated:
        yield f"inv_freq must have one dimension of length rotary_dim / 2 = {rotated // 2}"
    if position.dtype.is_complex or not _broadcasts(position.shape, x.shape[:-1]):
        yield "position must be real and broadcast to x without its last dimension"
    result = op.result.type
    if not isinstance(result, TensorType) or result.dtype is not x.dtype or not _same_shape(result.shape, x.shape):
        yield "the result must have x's dtype and shape"


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
        Operand("position", "tensor", "broadcasts to x.shape[:-1], aligned at the right"),
        Operand("inv_freq", "tensor", "float[rotary_dim / 2], angle per position of each pair"),
    ),
    attributes=(
        Attribute("style", str, "`half` pairs (i, i + rotary_dim/2), `interleaved` pairs (2i, 2i + 1)"),
        Attribute("rotary_dim", int, "how many leading features rotate; the rest pass through"),
        Attribute("attention_factor", float, "factor on cos and sin (1.0 but for some length scalings)"),
    ),
    results=(Result("out", "x's dtype and shape, contiguous"),),
    verify=_verify_rope,
    infer=_infer_rope,
    doc=(
        "Pair (x, y) at angle a = position · inv_freq[i] becomes `(x·c − y·s, y·c + x·s)` with "
        "`c = attention_factor · cos a` and `s = attention_factor · sin a`, angles in f32."
    ),
)

OPS: tuple[OpDef, ...] = (ATTENTION, ROPE)
