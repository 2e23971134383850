"""The interpreter's values: a handle is a numpy array with a Triton dtype. Read as numbers, and made of numbers.

bf16 and fp8 lie in it as their bits, in unsigned integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as stock

from tests.triton.number_formats import E4M3, E5M2, Array, Fp8, read_bf16, write_bf16

FP8 = {"fp8e4nv": E4M3, "fp8e5": E5M2}


def is_stored_as_bits(dtype: tl.dtype) -> bool:
    return dtype.is_floating() and dtype.name not in ("fp16", "fp32", "fp64")


def numbers(handle: Any) -> Array:
    """The numbers a handle holds: bf16 and fp8 as float32."""
    dtype, data = handle.dtype.scalar, np.asarray(handle.data)
    if not is_stored_as_bits(dtype):
        return data
    return read_bf16(data) if dtype == tl.bfloat16 else fp8_format(dtype).read(data)


def handle_of(values: Array, dtype: tl.dtype, toward_zero: bool = False) -> Any:
    """Numbers as a handle of ``dtype``, rounded once."""
    if dtype == tl.bfloat16:
        data = write_bf16(values, toward_zero)
    elif is_stored_as_bits(dtype):
        data = fp8_format(dtype).write(values, toward_zero)
    else:
        data = values.astype(stock._get_np_dtype(dtype))
    return stock.TensorHandle(data, dtype)


def fp8_format(dtype: tl.dtype) -> Fp8:
    if dtype.name not in FP8:
        raise TypeError(f"triton_compat: no {dtype.name}, only {', '.join(FP8)}")
    return FP8[dtype.name]


def operand(handle: Any) -> Any:
    """A handle to compute with: bf16 as float32, others as they are."""
    dtype = handle.dtype.scalar
    if not is_stored_as_bits(dtype):
        return handle
    if dtype != tl.bfloat16:
        raise TypeError(f"triton_compat: arithmetic on {dtype.name}; cast it first")
    return stock.TensorHandle(read_bf16(handle.data), tl.float32)


def retyped(tensor: Any, dtype: tl.dtype) -> Any:
    """The tensor cast to ``dtype``, for blocks and scalars."""
    whole = tl.core.block_type(dtype, list(tensor.type.shape)) if tensor.type.is_block() else dtype
    return tl.core.tensor(handle_of(numbers(tensor.handle), dtype), whole)
