"""Calls a kernel of paged attention: one array of integers, torch's own threads. Mirrors ``attnc/paged_entry.h``."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from attnc.codegen.paged_plan import PagedPlan
from attnc.runtime.abi import DTYPE_NAMES, DTYPES
from attnc.runtime.entry import Entry
from attnc.runtime.errors import BuildError

_CODES = {dtype: DTYPE_NAMES.index(name) for name, dtype in DTYPES.items()}
_CODES[torch.float8_e4m3fn] = _CODES[torch.uint8]  # bytes to the ABI; the plan says what they mean
_ABSENT = (0, 0, 0)


@dataclass(frozen=True)
class PagedKernel:
    """A loaded kernel."""

    plan: PagedPlan
    library: ctypes.CDLL

    def __call__(self, tensors: Sequence[Tensor | None], sizes: Sequence[int]) -> None:
        """Run on q, k_pages, v_pages, k_scale, v_scale, block_table, query_start, context_len, out and the sides.

        Raises RuntimeError for a status the kernel reports.
        """
        words: list[int] = [len(tensors) - 9, len(sizes), *sizes]
        for tensor in tensors:
            words += _ABSENT if tensor is None else _view(tensor)
        array = (ctypes.c_int64 * len(words))(*words)
        status = self.library.attnc_paged_run(array, _parallel_for(), torch.get_num_threads())
        if status != 0:
            text = self.library.attnc_status(status).decode(errors="replace")
            shapes = ", ".join("none" if t is None else str(tuple(t.shape)) for t in tensors)
            raise RuntimeError(
                f"attnc::paged_attention, plan {self.plan.digest}: {text} (status {status}; operands, result and "
                f"sides have the shapes {shapes})"
            )


def _view(tensor: Tensor) -> tuple[int, ...]:
    """Address, dtype, rank, lengths, strides."""
    if tensor.device.type != "cpu":
        raise ValueError(f"attnc::paged_attention: an operand is on {tensor.device}, the plan is for CPUs; move it")
    return (tensor.data_ptr(), _CODES.get(tensor.dtype, -1), tensor.dim(), *tensor.shape, *tensor.stride())


def load(plan: PagedPlan, entry: Entry) -> PagedKernel:
    """The kernel of a built entry. Raises BuildError where it can't be loaded or is of another plan."""
    try:
        library = ctypes.CDLL(str(entry.library))
        library.attnc_paged_run.argtypes = [ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p, ctypes.c_int64]
        library.attnc_paged_run.restype = ctypes.c_int32
        library.attnc_status.restype = ctypes.c_char_p
        library.attnc_plan_digest.restype = ctypes.c_uint64
        digest = library.attnc_plan_digest()
    except (OSError, AttributeError) as error:
        raise BuildError(f"loading the kernel {entry.library}: {error}. Run `attnc cache clear`.") from error
    if digest != plan.digest:
        raise BuildError(f"loading the kernel {entry.library}: it says it is of plan {digest}, not {plan.digest}.")
    return PagedKernel(plan, library)


@functools.cache
def _parallel_for() -> int | None:
    """The address of torch's ``torch_parallel_for``: kernels share its pool and call it themselves."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    return ctypes.cast(library.torch_parallel_for, ctypes.c_void_p).value
