from __future__ import annotations

import pytest
from machine_samples import binary

from attnc.codegen.targets import capability
from attnc.compiler.machine.occupancy import Occupancy, occupancy


@pytest.mark.parametrize(
    ("target", "registers", "shared", "num_warps", "programs", "limit"),
    [
        ("sm_90", 119, 57 << 10, 4, 3, "shared"),
        ("sm_90", 128, 49 << 10, 4, 4, "registers"),
        ("sm_90", 129, 49 << 10, 4, 3, "registers"),  # 136 registers a lane: 3 warps a scheduler
        ("sm_90", 168, 66 << 10, 8, 1, "registers"),  # 12 warps in all, of which 8 are a program
        ("sm_90", 160, 66 << 10, 8, 1, "registers"),
        ("sm_90", 32, 0, 1, 32, "programs"),
        ("sm_90", 32, 0, 16, 4, "registers"),
        ("sm_90", 24, 0, 16, 4, "warps"),
        ("sm_90", 24, 227 << 10, 4, 1, "shared"),
        ("sm_90", 24, (227 << 10) + 1, 4, 0, "shared"),
        ("sm_90", 255, 0, 16, 0, "registers"),
        ("sm_86", 40, 0, 2, 16, "programs"),
        ("sm_86", 40, 0, 4, 12, "registers"),
        ("gfx942", 211, 16 << 10, 4, 2, "registers"),  # 216 of 512: two waves a SIMD
        ("gfx942", 128, 16 << 10, 4, 4, "registers"),
        ("gfx942", 64, 16 << 10, 4, 4, "shared"),
        ("gfx942", 64, 0, 4, 8, "registers"),
        ("gfx950", 64, 16 << 10, 4, 8, "registers"),
    ],
)
def test_programs_and_what_limits_them(
    target: str, registers: int, shared: int, num_warps: int, programs: int, limit: str
) -> None:
    gpu = capability(target).gpu
    assert gpu is not None
    kernel = binary(registers=registers, shared=shared, num_warps=num_warps)
    assert occupancy(kernel, gpu) == Occupancy(programs, limit)


@pytest.mark.parametrize(("columns", "programs"), [(256, 2), (512, 1), (513, 0)])
def test_tensor_memory_limits_too(columns: int, programs: int) -> None:
    gpu = capability("sm_100").gpu
    assert gpu is not None
    assert occupancy(binary(tensor_memory=columns, registers=32), gpu) == Occupancy(programs, "tensor memory")
