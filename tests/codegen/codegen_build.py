"""Compiles emitted C++ kernels and calls them through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from attnc.codegen.cpp.emitter import emit
from attnc.codegen.plan import KernelPlan
from attnc.codegen.source import INCLUDE_DIR

DTYPES = {
    torch.float64: 0, torch.float32: 1, torch.float16: 2, torch.bfloat16: 3, torch.int64: 4,
    torch.int32: 5, torch.int16: 6, torch.int8: 7, torch.uint8: 8, torch.bool: 9,
}  # fmt: skip
NAMES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_int64, BODY, ctypes.c_void_p)


class CTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    ]


class CArgs(ctypes.Structure):
    _fields_ = [
        *((name, CTensor) for name in ("q", "k", "v", "out", "lse")),
        ("side", ctypes.POINTER(CTensor)),
        ("num_side", ctypes.c_int32),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("num_sizes", ctypes.c_int32),
        ("parallel", PARALLEL),
    ]


def c_tensor(x: torch.Tensor) -> CTensor:
    ints = ctypes.c_int64 * max(1, x.dim())
    return CTensor(x.data_ptr(), ints(*x.shape), ints(*x.stride()), x.dim(), DTYPES[x.dtype])


class KernelError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


@PARALLEL
def _four_threads(n: int, body: object, state: int) -> None:
    """Items one by one, from four threads, last item first."""
    with ThreadPoolExecutor(4) as pool:
        for job in [pool.submit(body, state, i, i + 1) for i in reversed(range(n))]:  # type: ignore[arg-type]
            job.result()


class Kernel:
    """A loaded kernel."""

    def __init__(self, plan: KernelPlan, library: Path) -> None:
        self.plan = plan
        self.library = ctypes.CDLL(str(library))
        self.library.attnc_status.restype = ctypes.c_char_p
        self.library.attnc_plan_digest.restype = ctypes.c_uint64

    def check(self, code: int) -> None:
        if code:
            raise KernelError(code, self.library.attnc_status(code).decode())

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        side: Sequence[torch.Tensor] = (),
        sizes: Sequence[int] = (),
        threads: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(out, lse), both filled with NaN before the kernel runs; lse is empty unless the plan returns it."""
        args = CArgs(c_tensor(q), c_tensor(k), c_tensor(v))
        out_sizes, lse_sizes = (ctypes.c_int64 * 8)(), (ctypes.c_int64 * 8)()
        self.check(self.library.attnc_shape(ctypes.byref(args), out_sizes, lse_sizes))
        rank = len(self.plan.out_axes)
        out = torch.full(out_sizes[:rank], float("nan"), dtype=NAMES[self.plan.dtypes[3]])
        lse = torch.full(lse_sizes[: rank - 1] if self.plan.returns_lse else (0,), float("nan"))
        args.out = c_tensor(out)
        if self.plan.returns_lse:
            args.lse = c_tensor(lse)
        args.side, args.num_side = (CTensor * max(1, len(side)))(*map(c_tensor, side)), len(side)
        args.sizes, args.num_sizes = (ctypes.c_int64 * max(1, len(sizes)))(*sizes), len(sizes)
        if threads:
            args.parallel = _four_threads
        self.check(self.library.attnc_run(ctypes.byref(args)))
        return out, lse

    def refuses(self, cpp: str, triton: str) -> AbstractContextManager[pytest.ExceptionInfo[KernelError]]:
        """A call inside fails with ``cpp`` in its text."""
        return pytest.raises(KernelError, match=cpp)


_loaded: dict[str, Kernel] = {}


def compile_plan(plan: KernelPlan, folder: Path, level: str = "-O3") -> Kernel:
    """The kernel, loaded; ``level`` replaces the optimisation level where only the result matters."""
    source = emit(plan)
    source = replace(source, flags=tuple(level if f == "-O3" else f for f in source.flags))
    if source.digest not in _loaded:
        stem = folder / f"{source.name}_{source.digest[:16]}"
        stem.with_suffix(".cpp").write_text(source.text)
        command = ["g++", *source.flags, "-I", str(INCLUDE_DIR), f"{stem}.cpp", "-o", f"{stem}.so"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:4000]
        _loaded[source.digest] = Kernel(plan, stem.with_suffix(".so"))
    return _loaded[source.digest]
