"""Whether a kernel may read keys and values through tensor descriptors, by which hardware copies tiles."""

from __future__ import annotations

from attnc.codegen.plan import KernelPlan
from attnc.codegen.targets import capability
from attnc.codegen.triton.dims import parts

DIMENSIONS = 5
"""Of a tensor descriptor, at most."""
COLUMNS = 256
"""Of its tiles, at most."""


def describable(plan: KernelPlan) -> bool:
    """Whether the target has descriptors and they can describe k and v, in the layouts that allow it.

    A tile is one block, so a head dimension in two parts would take two descriptors of each operand; it goes by
    pointers. One that isn't known is looked at when the kernel is launched.
    """
    gpu = capability(plan.target).gpu
    if gpu is None or not gpu.tensor_memory_access:
        return False
    blocks = [parts(length) for length in (plan.head_dim, plan.value_dim) if length is not None]
    dimensions = max(len(plan.k_axes), len(plan.v_axes))
    return dimensions <= DIMENSIONS and all(high <= COLUMNS and low == 0 for high, low in blocks)


def preferred(plan: KernelPlan) -> bool:
    """Whether Triton is given descriptors at a launch, where the layouts allow it.

    Compiled kernels took fewer registers and no more instructions with them on Hopper, at a head dimension of 128 and
    16 bits (docs/kernels.md). Elsewhere loops got longer: smaller heads have tiles of more keys, float32 is split in
    registers, and other GPUs save registers that nothing needs.
    """
    gpu = capability(plan.target).gpu
    hopper = gpu is not None and "HGMMA" in gpu.matrix
    lengths = (plan.head_dim or 0, plan.value_dim or 0)
    return describable(plan) and hopper and max(lengths) == 128 and {"bf16", "f16"} >= set(plan.dtypes[1:3])
