"""What AOTAutograd makes of an attention on a GPU: the launch of its Triton kernel instead of an opaque op.

Inductor then sees a user's Triton kernel: it compiles it, launches it without Python between, lays out what comes
before and after around it, and records it into CUDA graphs. On any other host the op stays as it is and launches the
same kernel itself. Under ``torch.export`` it stays too: a program that is saved holds no kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._functorch import config as functorch
from torch._library.triton import triton_ops_to_kernels
from torch._subclasses.functional_tensor import FunctionalTensorMode

from attnc.runtime import kernels
from attnc.runtime.dispatch import NAMESPACE, OpLibrary
from attnc.runtime.triton_kernels import module_of


def register(library: OpLibrary) -> None:
    """Let AOTAutograd see through ``attnc::attention`` where its plan has a kernel for a GPU."""
    library.dispatched("attention", FunctionalTensorMode, _functional)


def announce(plan: int) -> None:
    """Make a plan's kernel part of what AOTAutograd's cache knows a graph by.

    The cache keeps what Inductor made of the kernel, under a key that has the op and the plan but not the kernel's
    text: without this, a kernel emitted otherwise by a later version would not be seen.
    """
    source = kernels.triton_source(plan)
    assert source is not None  # a plan for a GPU
    known = triton_ops_to_kernels.setdefault(f"{NAMESPACE}::attention", [])
    kernel = module_of(source).prefill
    if kernel not in known:
        known.append(kernel)


def _functional(mode: Any, op: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    plan = args[4]
    if not functorch.decompose_custom_triton_ops or not kernels.runs_on_gpu(plan):
        return mode.__torch_dispatch__(op, types, args, kwargs)
    with mode:
        return launched(*args)


def launched(
    q: Tensor, k: Tensor, v: Tensor, side: Sequence[Tensor | None], plan: int, sizes: Sequence[Any]
) -> tuple[Tensor, Tensor]:
    """An attention as an allocation of its results and the launch of its kernel, for a tracer to record."""
    source = kernels.triton_source(plan)
    assert source is not None  # asked before
    module = module_of(source)
    out, lse, programs, arguments = module.prepared(q, k, v, [x for x in side if x is not None], sizes)
    if programs:
        kernel = torch.library.wrap_triton(module.prefill)
        kernel[(programs,)](*arguments, num_warps=module.NUM_WARPS, num_stages=module.NUM_STAGES)
    return out, lse
