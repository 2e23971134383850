"""Literals shared by torch and the IR: dtypes, devices, layouts and memory formats, by name."""

from __future__ import annotations

from typing import Any

import torch

from attnc.ir.types import DType
from attnc.ir.values import Literal

TO_IR: dict[torch.dtype, DType] = {
    torch.float64: DType.F64,
    torch.float32: DType.F32,
    torch.float16: DType.F16,
    torch.bfloat16: DType.BF16,
    torch.float8_e4m3fn: DType.F8E4M3,
    torch.float8_e5m2: DType.F8E5M2,
    torch.int64: DType.I64,
    torch.int32: DType.I32,
    torch.int16: DType.I16,
    torch.int8: DType.I8,
    torch.uint8: DType.U8,
    torch.uint16: DType.U16,
    torch.uint32: DType.U32,
    torch.uint64: DType.U64,
    torch.bool: DType.B1,
    torch.complex64: DType.C64,
    torch.complex128: DType.C128,
}
TO_TORCH = {ours: theirs for theirs, ours in TO_IR.items()}


def literal(value: Any) -> Literal | None:
    """The literal of a dtype, device, layout or memory format; None for anything else.

    Dtypes the IR has no element type for keep torch's name: they are only carried.
    """
    if isinstance(value, torch.dtype):
        return Literal("dtype", TO_IR[value].value if value in TO_IR else _short(value))
    if isinstance(value, torch.device):
        return Literal("device", str(value))
    if isinstance(value, torch.layout):
        return Literal("layout", _short(value))
    if isinstance(value, torch.memory_format):
        return Literal("memory_format", _short(value))
    return None


def from_literal(value: Literal) -> Any:
    """The torch object a literal names. Raises ValueError for a kind or name torch doesn't have."""
    if value.kind == "device":
        return torch.device(value.text)
    if value.kind == "dtype" and value.text in {d.value for d in DType}:
        return TO_TORCH[DType(value.text)]
    if value.kind in ("dtype", "layout", "memory_format") and hasattr(torch, value.text):
        return getattr(torch, value.text)
    raise ValueError(f"no torch object for the literal {value.kind} {value.text}")


def _short(value: Any) -> str:
    return str(value).removeprefix("torch.")
