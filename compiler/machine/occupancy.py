"""How many programs of a kernel a multiprocessor or compute unit runs at once, and what keeps it from more.

Both makers hand out registers in steps of eight for each lane, from four register files of equal size, one for each
scheduler; a program's warps are spread over the schedulers. Sources: the occupancy calculator of NVIDIA's CUDA toolkit;
the kernel descriptor in LLVM's guide to its AMD GPU backend.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnc.codegen.targets import Gpu
from attnc.compiler.machine.build import Binary

SCHEDULERS = 4
REGISTER_STEP = 8
SHARED_STEP = {"cuda": 128, "hip": 512}
"""Bytes."""
TENSOR_COLUMNS = 512
"""Of tensor memory of a multiprocessor (sm_100)."""


@dataclass(frozen=True)
class Occupancy:
    """``programs`` at once, 0 where one does not fit; ``limit`` names what runs out first."""

    programs: int
    limit: str


def occupancy(binary: Binary, gpu: Gpu) -> Occupancy:
    """Of one multiprocessor or compute unit."""
    registers = _up(max(binary.registers, 1), REGISTER_STEP) * gpu.warp_size
    warps = SCHEDULERS * (gpu.registers_per_core // SCHEDULERS // registers)
    shared = _up(binary.shared + gpu.reserved_shared, SHARED_STEP[gpu.backend])
    limits = {
        "registers": warps // binary.num_warps,
        "warps": gpu.warps_per_core // binary.num_warps,
        "programs": gpu.programs_per_core,
    }
    if shared:
        limits["shared"] = gpu.shared_per_core // shared
    if binary.tensor_memory:
        limits["tensor memory"] = TENSOR_COLUMNS // binary.tensor_memory
    limit = min(limits, key=lambda name: limits[name])
    return Occupancy(limits[limit], limit)


def _up(value: int, step: int) -> int:
    """The next multiple of ``step``."""
    return -(-value // step) * step
