"""Calls a kernel from Python through ctypes: the route where the C++ launcher can't be built."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from attnc.runtime import reference
from attnc.runtime.abi import DTYPES, Args, Parallel, TensorView, i64_array, view
from attnc.runtime.kernels import Kernel

ITEMS_PER_THREAD = 16

_Run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(Args))
_Status = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_int32)


def attention(
    kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, side: Sequence[Tensor | None], sizes: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """``(out, lse)`` of ``attnc::attention``.

    Raises ValueError for operands that don't fit the plan, RuntimeError for a status the kernel reports.
    """
    plan = kernel.plan
    problem = reference.Problem.of(plan, q, k, v, side, sizes, None)
    out = q.new_empty([problem.lengths[axis] for axis in plan.out_axes], dtype=DTYPES[plan.dtypes[3]])
    lse_shape = [problem.lengths[axis] for axis in plan.out_axes if axis != "e"] if plan.returns_lse else [0]
    lse = q.new_empty(lse_shape, dtype=torch.float32)
    views = [view(t, dtype) for t, dtype in zip((q, k, v, out), plan.dtypes, strict=True)]
    views.append(view(lse, "f32") if plan.returns_lse else TensorView())
    sides = [view(tensor, s.dtype) for tensor, s in zip(problem.sides, plan.sides, strict=True)]
    args = Args(
        *views, (TensorView * max(1, len(sides)))(*sides), len(sides), i64_array(sizes), len(sizes), _run_parallel
    )
    status = _Run(kernel.run)(ctypes.byref(args))
    if status != 0:
        text = (_Status(kernel.status)(status) or b"").decode(errors="replace")
        raise RuntimeError(
            f"attnc::attention, plan {plan.digest}: {text} (status {status}; q {tuple(q.shape)}, k {tuple(k.shape)}, "
            f"v {tuple(v.shape)})"
        )
    return out, lse


def _parallel(n: int, body: Any, state: int | None) -> None:
    """Run the items on as many threads as torch uses; ctypes lets go of the interpreter lock in ``body``."""
    threads = min(torch.get_num_threads(), n)
    if threads <= 1:
        body(state, 0, n)
        return
    step = max(1, n // (threads * ITEMS_PER_THREAD))
    with ThreadPoolExecutor(threads) as pool:
        for begin in range(0, n, step):
            pool.submit(body, state, begin, min(begin + step, n))


_run_parallel = Parallel(_parallel)
