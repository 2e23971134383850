"""Kernels that each show one thing the interpreter must do right, with host functions that return what they made.

Imported only in an interpreter's process, by ``worker.call("tests.triton.kernels:…")``.
"""
# ruff: noqa: N803 (constants of a kernel are capitals)

from __future__ import annotations

from unittest.mock import patch

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.triton import repairs, triton_compat

DTYPES = {
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
    torch.float8_e4m3fn: tl.float8e4nv,
    torch.float8_e5m2: tl.float8e5,
    torch.int8: tl.int8,
    torch.int32: tl.int32,
    torch.bool: tl.int1,
}


@triton.jit
def dot_kernel(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * N + n[None, :])
    at = c + m[:, None] * N + n[None, :]
    tl.store(at, tl.dot(left, right, acc=tl.load(at), input_precision=PRECISION))


def dot(a: Tensor, b: Tensor, precision: str = "ieee", round_tf32: bool = False) -> Tensor:
    """1 + a·b in float32."""
    c = torch.ones(a.shape[0], b.shape[1])
    arguments = a, b, c, a.shape[0], b.shape[1], a.shape[1], precision
    if round_tf32:
        with triton_compat.tf32_rounding():
            dot_kernel[(1,)](*arguments)
    else:
        dot_kernel[(1,)](*arguments)
    return c


@triton.jit
def elementwise_kernel(x, y, z, out, n, N: tl.constexpr, OP: tl.constexpr):
    i = tl.arange(0, N)
    a, b, c = tl.load(x + i, i < n), tl.load(y + i, i < n), tl.load(z + i, i < n)
    if OP == "add":
        r = a + b
    elif OP == "sub":
        r = a - b
    elif OP == "mul":
        r = a * b
    elif OP == "div":
        r = a / b
    elif OP == "neg":
        r = -a
    elif OP == "abs":
        r = tl.abs(a)
    elif OP == "constant":
        r = a * 1.7 + 0.3
    elif OP == "full":
        r = a + tl.full((N,), -2.6, tl.bfloat16)
    elif OP == "fma":
        r = tl.fma(a, b, c)
    elif OP == "maximum":
        r = tl.maximum(a, b)
    elif OP == "minimum":
        r = tl.minimum(a, b)
    elif OP == "propagating":
        r = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "where":
        r = tl.where(a < b, a, c)
    elif OP == "lt":
        r = a < b
    elif OP == "le":
        r = a <= b
    elif OP == "gt":
        r = a > b
    elif OP == "ge":
        r = a >= b
    elif OP == "eq":
        r = a == b
    elif OP == "ne":
        r = a != b
    tl.store(out + i, r, i < n)


def elementwise(op: str, x: Tensor, y: Tensor, z: Tensor, dtype: torch.dtype) -> Tensor:
    out = torch.empty(len(x), dtype=dtype)
    elementwise_kernel[(1,)](x, y, z, out, len(x), triton.next_power_of_2(len(x)), op)
    return out


@triton.jit
def product(a, b):
    return a * b


@triton.jit
def reduce_kernel(x, out, M: tl.constexpr, N: tl.constexpr, OP: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    at = i[:, None] * N + j[None, :]
    a = tl.load(x + at)
    if OP == "sum":
        tl.store(out + i, tl.sum(a, 1))
    elif OP == "max":
        tl.store(out + i, tl.max(a, 1))
    elif OP == "min":
        tl.store(out + i, tl.min(a, 1))
    elif OP == "argmax":
        tl.store(out + i, tl.argmax(a, 1))
    elif OP == "product":
        tl.store(out + i, tl.reduce(a, 1, product))
    elif OP == "all":
        tl.store(out, tl.sum(a))
    elif OP == "cumsum":
        tl.store(out + at, tl.cumsum(a, 1))


def reduce(op: str, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Over the rows of x [M, N]; "all" over everything."""
    out = torch.empty({"all": (1,), "cumsum": tuple(x.shape)}.get(op, (len(x),)), dtype=dtype)
    reduce_kernel[(1,)](x, out, *x.shape, op)
    return out


@triton.jit
def cast_kernel(x, out, n, N: tl.constexpr, DTYPE: tl.constexpr, ROUNDING: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i, i < n).to(DTYPE, fp_downcast_rounding=ROUNDING), i < n)


def cast(x: Tensor, dtype: torch.dtype, rounding: str | None = None) -> Tensor:
    out = torch.empty(len(x), dtype=dtype)
    cast_kernel[(1,)](x, out, len(x), triton.next_power_of_2(len(x)), DTYPES[dtype], rounding)
    return out


@triton.jit
def loop_kernel(x, bounds, out):
    start, end = tl.load(bounds), tl.load(bounds + 1)
    total = 0.0
    for i in range(start, end):
        total += tl.load(x + i)
    for i in tl.range(start, end, 2):
        total += tl.load(x + i)
    tl.store(out, total)


def loop(x: Tensor, start: int, end: int) -> Tensor:
    """The sum of x[start:end], and of every second of these once more; the bounds come from memory."""
    out = torch.zeros(1)
    loop_kernel[(1,)](x, torch.tensor([start, end], dtype=torch.int32), out)
    return out


@triton.jit
def mask_kernel(x, out, n, shown, N: tl.constexpr):
    i = tl.arange(0, N)
    visible = (i < n) & (shown > 0)
    tl.store(out + i, tl.load(x + i, mask=visible, other=-1.0), mask=(shown > -1) & (i < N))


def mask(x: Tensor, n: int, shown: int) -> Tensor:
    """The first n of x and -1 for the rest; only -1 unless ``shown``."""
    out = torch.zeros_like(x)
    mask_kernel[(1,)](x, out, n, shown, len(x))
    return out


@triton.jit
def descriptor_kernel(x, out, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS
    out.store([row, 0], x.load([row, 0]) * 1.5)


def descriptors(x: Tensor) -> Tensor:
    """1.5 x for x [M, N], through tensor descriptors made on the host; the last block goes past the end."""
    out = torch.empty_like(x)
    x_block, out_block = (TensorDescriptor.from_tensor(t, [16, x.shape[1]]) for t in (x, out))
    descriptor_kernel[(triton.cdiv(len(x), 16),)](x_block, out_block, 16)
    return out


@triton.jit
def atomic_kernel(x):
    tl.atomic_add(x, tl.load(x))


def atomic_add(x: Tensor) -> None:
    atomic_kernel[(1,)](x)


def applied() -> list[str]:
    return triton_compat.applied


def guard_with_stock_dot() -> None:
    with patch.object(repairs.BUILDER, "create_dot", repairs.BUILDER.create_dot.__wrapped__):
        triton_compat.guard()


def require_without(name: str) -> None:
    method = getattr(repairs.BUILDER, name)
    delattr(repairs.BUILDER, name)
    try:
        triton_compat.require()
    finally:
        setattr(repairs.BUILDER, name, method)
