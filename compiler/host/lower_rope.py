"""``attn.rope`` as torch operators: one program, issued as nodes for the host and run at once by the interpreter.

With C = [c, c] and S = [−s, s] over the rotary features (or their interleaved forms) a rotation is x·C + swap(x)·S,
where swap exchanges the features of each pair: a copy, a product and a fused multiply-add, two passes fewer over x
than the usual spelling. C and S depend on the angles alone and are made once for all rotations by the same angles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from attnc.compiler.frontends.torch.dtypes import TO_TORCH
from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.fuse.rewrite import memory_order
from attnc.ir.types import DType
from attnc.ir.values import Op, Value

Emit = Callable[..., Any]
"""``emit(aten op without its dialect, *arguments, **keywords)``: its result, as a node or as a tensor.

``origin`` is metadata that a node takes over instead of its rotation's.
"""
Of = Callable[[Value], Any]
"""What ``emit`` takes for a value."""


def _as_it_is(angle: Any) -> Any:
    return angle


@dataclass
class RopeProgram:
    """The rotations of one graph.

    ``complex_products``: a rotation that the source computes with complex numbers stays one product of them. ATen does
    that in a single pass; Inductor has no code for complex numbers.
    """

    complex_products: bool = False
    rounded: Callable[[Any], Any] = _as_it_is
    """Makes an angle what float32 holds of it, where it is computed in another dtype."""
    tables: dict[object, Any] = field(default_factory=dict, repr=False)

    def run(self, op: Op, emit: Emit, of: Of) -> Any:
        """The result of one ``attn.rope``."""
        x, result = op.args[0], op.result
        assert isinstance(x, Value)
        rotary_dim, features = int(op.attrs["rotary_dim"]), tensor_type(x).shape[-1]
        order = memory_order(result)
        if order[-1] != len(order) - 1:
            order = tuple(range(len(order)))  # features apart in memory: rotate as is, then copy
        turned = _permuted(emit, of(x), order)
        rotary = turned if rotary_dim == features else emit("slice.Tensor", turned, -1, 0, rotary_dim)
        if self.complex_products and _stays_complex(op):
            rotated = self._complex(op, emit, of, rotary, order)
        else:
            cosine, sine = (_permuted(emit, table, order) for table in self._table(op, emit, of))
            product = emit("mul.Tensor", _swapped(op, emit, rotary), sine)  # contiguous, and so is what is added to it
            # Expanded first: torch 2.13's shape function of addcmul cannot broadcast symbolic sizes.
            rotated = emit("addcmul.default", product, rotary, emit("expand_as.default", cosine, rotary))
        if rotary_dim != features:
            rotated = emit("cat.default", [rotated, emit("slice.Tensor", turned, -1, rotary_dim)], -1)
        return _stored(emit, _permuted(emit, rotated, _inverse(order)), memory_order(result), order)

    def _table(self, op: Op, emit: Emit, of: Of) -> tuple[Any, Any]:
        """C and S in the result's dtype, with as many dimensions as x."""
        dtype = tensor_type(op.result).dtype
        key = (*_key(op), op.attrs["style"], dtype)
        if key not in self.tables:
            shared = partial(emit, origin=op.meta.get("tables", {}))
            waves = _given(op, shared, of) if _is_given(op) else self._waves(op, shared, of)
            self.tables[key] = tuple(_cast(shared, _scaled(op, shared, x), source, dtype) for x, source in waves)
        cosine, sine = self.tables[key]
        return cosine, sine

    def _waves(self, op: Op, emit: Emit, of: Of) -> tuple[tuple[Any, DType], ...]:
        """C and S of the angles, each with its dtype."""
        angle, computed = _angle(op, emit, of, self.rounded)
        signed = _paired(op, emit, emit("neg.default", angle), angle)
        waves = (emit("cos.default", _paired(op, emit, angle, angle)), emit("sin.default", signed))
        return tuple((wave, computed) for wave in waves)

    def _complex(self, op: Op, emit: Emit, of: Of, rotary: Any, order: tuple[int, ...]) -> Any:
        """The pairs as complex numbers, times e^{ia}."""
        key = (*_key(op), "complex")
        if key not in self.tables:
            shared = partial(emit, origin=op.meta.get("tables", {}))
            angle, computed = _angle(op, shared, of, self.rounded)
            waves = (_scaled(op, shared, shared(name, angle)) for name in ("cos.default", "sin.default"))
            self.tables[key] = shared("complex.default", *(_cast(shared, w, computed, DType.F32) for w in waves))
        pairs = emit("unflatten.int", rotary, -1, [int(op.attrs["rotary_dim"]) // 2, 2])
        numbers = emit("mul.Tensor", emit("view_as_complex.default", pairs), _permuted(emit, self.tables[key], order))
        return emit("flatten.using_ints", emit("view_as_real.default", numbers), -2)


def _key(op: Op) -> tuple[object, ...]:
    """Equal for rotations by the same angles, on tensors of one rank, with gradients on in both or off in both."""
    return (
        *op.args[1:],
        op.attrs["attention_factor"],
        op.attrs["rounded"],
        tensor_type(op.result).rank,
        op.meta.get("recorded", True),
    )


def _angle(op: Op, emit: Emit, of: Of, rounded: Callable[[Any], Any]) -> tuple[Any, DType]:
    """[…, rotary_dim / 2]: the sum of position · frequency, with as many dimensions as x; and its dtype."""
    total, computed = None, DType.F32
    for position, frequency in zip(*map(_values, op.args[1:3]), strict=True):
        kinds = tensor_type(position).dtype, tensor_type(frequency).dtype
        dtype = DType.F64 if DType.F64 in kinds else DType.F32
        computed = DType.F64 if dtype is DType.F64 else computed
        aligned = _raised(emit, of(position), tensor_type(op.result).rank - 1 - tensor_type(position).rank)
        aligned = _cast(emit, emit("unsqueeze.default", aligned, -1), kinds[0], dtype)
        term = emit("mul.Tensor", aligned, _cast(emit, of(frequency), kinds[1], dtype))
        term = rounded(term) if op.attrs["rounded"] else term
        total = term if total is None else emit("add.Tensor", total, term)
    return total, computed


def _is_given(op: Op) -> bool:
    """Whether the op has tables of cosines and sines instead of positions."""
    return len(op.args) > 3 and bool(op.args[3])


def _given(op: Op, emit: Emit, of: Of) -> tuple[tuple[Any, DType], ...]:
    """C and S from given cosines and sines, with as many dimensions as x, each with its dtype."""
    cosines, sines = _values(op.args[3])
    cosine, whole = _table_of(op, emit, of, cosines)
    cosine = cosine if whole else _paired(op, emit, cosine, cosine)
    sine, whole = _table_of(op, emit, of, sines)
    first, second = _sides(op, emit, sine) if whole else (sine, sine)
    sine = _paired(op, emit, emit("neg.default", first), second)
    return (cosine, tensor_type(cosines).dtype), (sine, tensor_type(sines).dtype)


def _table_of(op: Op, emit: Emit, of: Of, table: Value) -> tuple[Any, bool]:
    """A given table with as many dimensions as x, and whether it has an entry for each feature, not for each pair."""
    kind = tensor_type(table)
    aligned = _raised(emit, of(table), tensor_type(op.result).rank - kind.rank)
    return aligned, kind.shape[-1] == op.attrs["rotary_dim"]


def _raised(emit: Emit, x: Any, by: int) -> Any:
    """``x`` with so many more dimensions in front."""
    for _ in range(by):
        x = emit("unsqueeze.default", x, 0)
    return x


def _scaled(op: Op, emit: Emit, wave: Any) -> Any:
    factor = op.attrs["attention_factor"]
    return wave if factor == 1.0 else emit("mul.Tensor", wave, factor)


def _cast(emit: Emit, x: Any, source: DType, dtype: DType) -> Any:
    return x if source is dtype else emit("_to_copy.default", x, dtype=TO_TORCH[dtype])


def _values(args: Any) -> tuple[Value, ...]:
    return tuple(arg for arg in args if isinstance(arg, Value))


def _dtypes(*values: Value) -> set[DType]:
    return {tensor_type(value).dtype for value in values}


def _stays_complex(op: Op) -> bool:
    """Whether the source multiplies complex numbers, and the result is stored in x's order, as their product is."""
    x = op.args[0]
    assert isinstance(x, Value)
    same = memory_order(x) == memory_order(op.result)
    return bool(op.meta.get("complex")) and not _is_given(op) and same and _dtypes(x, op.result) == {DType.F32}


def _paired(op: Op, emit: Emit, first: Any, second: Any) -> Any:
    """One number for each feature, from those of the first and of the second features of pairs."""
    if op.attrs["style"] == "half":
        return emit("cat.default", [first, second], -1)
    return emit("flatten.using_ints", emit("stack.default", [first, second], -1), -2)


def _swapped(op: Op, emit: Emit, rotary: Any) -> Any:
    """x with the two features of each pair exchanged, contiguous."""
    first, second = _sides(op, emit, rotary)
    return _paired(op, emit, second, first)


def _sides(op: Op, emit: Emit, rotary: Any) -> tuple[Any, Any]:
    """The first and the second features of all pairs."""
    half = int(op.attrs["rotary_dim"]) // 2
    apart = (
        ((0, 2 * half, 2), (1, 2 * half, 2)) if op.attrs["style"] == "interleaved" else ((0, half), (half, 2 * half))
    )
    first, second = (emit("slice.Tensor", rotary, -1, *bounds) for bounds in apart)
    return first, second


def _permuted(emit: Emit, x: Any, order: tuple[int, ...]) -> Any:
    return x if order == tuple(range(len(order))) else emit("permute.default", x, list(order))


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(dim) for dim in range(len(order)))


def _stored(emit: Emit, x: Any, wanted: tuple[int, ...], order: tuple[int, ...]) -> Any:
    """``x``, whose memory is in ``order``, in the wanted order."""
    if wanted == order:
        return x
    copied = emit("clone.default", _permuted(emit, x, wanted), memory_format=torch.contiguous_format)
    return _permuted(emit, copied, _inverse(wanted))
