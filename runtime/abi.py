"""The C ABI of kernels and of the launcher, as ctypes sees it. Mirrors ``attnc/abi.h`` and ``csrc/launcher.cpp``."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from attnc.codegen.plan import KernelPlan

LAUNCHER_ABI = 1
"""Version of :class:`PlanRecord` and of the launcher's exported functions."""

DTYPE_NAMES = ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "b1")
DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "b1": torch.bool,
}
"""Plan dtype → torch dtype."""

_I64 = ctypes.POINTER(ctypes.c_int64)
_I32 = ctypes.POINTER(ctypes.c_int32)

Body = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
Parallel = ctypes.CFUNCTYPE(None, ctypes.c_int64, Body, ctypes.c_void_p)
Resolver = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.POINTER(ctypes.c_char), ctypes.c_int64)
"""``(key, message buffer, its size) -> 0`` once the key is registered, else 1 and a message."""


class TensorView(ctypes.Structure):
    """``attnc_tensor``; strides in elements."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("sizes", _I64),
        ("strides", _I64),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    ]


class Args(ctypes.Structure):
    """``attnc_args``."""

    _fields_ = [
        ("q", TensorView),
        ("k", TensorView),
        ("v", TensorView),
        ("out", TensorView),
        ("lse", TensorView),
        ("side", ctypes.POINTER(TensorView)),
        ("num_side", ctypes.c_int32),
        ("sizes", _I64),
        ("num_sizes", ctypes.c_int32),
        ("parallel", Parallel),
    ]


class PlanRecord(ctypes.Structure):
    """``PlanRecord`` of the launcher: what it checks and calls for one plan. ``run`` null: use the ATen reference."""

    _fields_ = [
        ("run", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("status", ctypes.c_void_p),
        ("dtypes", ctypes.c_int32 * 4),
        ("ranks", ctypes.c_int32 * 4),
        ("side_dtypes", _I32),
        ("side_ranks", _I32),
        ("num_side", ctypes.c_int32),
        ("num_sizes", ctypes.c_int32),
        ("returns_lse", ctypes.c_int32),
    ]


def dtype_code(name: str) -> int:
    """The ABI's code of a plan dtype. Raises ValueError for a dtype that kernels don't take."""
    return DTYPE_NAMES.index(name)


def i64_array(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """A C array of these values; of one element at least, since C has no empty arrays."""
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def view(tensor: torch.Tensor, dtype: str) -> TensorView:
    """A view of ``tensor``, which must outlive it."""
    sizes, strides = i64_array(tensor.shape), i64_array(tensor.stride())
    return TensorView(
        tensor.data_ptr(), ctypes.cast(sizes, _I64), ctypes.cast(strides, _I64), tensor.dim(), dtype_code(dtype)
    )


def plan_record(plan: KernelPlan, run: int | None, shape: int | None, status: int | None) -> PlanRecord:
    """The launcher's record of ``plan`` with the addresses of its kernel's functions."""
    axes = (plan.q_axes, plan.k_axes, plan.v_axes, plan.out_axes)
    sides = plan.sides
    count = max(1, len(sides))
    return PlanRecord(
        run=run,
        shape=shape,
        status=status,
        dtypes=(ctypes.c_int32 * 4)(*(dtype_code(name) for name in plan.dtypes)),
        ranks=(ctypes.c_int32 * 4)(*(len(names) for names in axes)),
        side_dtypes=ctypes.cast((ctypes.c_int32 * count)(*(dtype_code(s.dtype) for s in sides)), _I32),
        side_ranks=ctypes.cast((ctypes.c_int32 * count)(*(s.rank for s in sides)), _I32),
        num_side=len(sides),
        num_sizes=len(plan.sizes),
        returns_lse=int(plan.returns_lse),
    )
