from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import machine_samples as samples
import pytest

from attnc.codegen.targets import CAPABILITIES, Gpu, capability
from attnc.compiler.machine import amdgcn, sass
from attnc.compiler.machine.build import Binary, compile_kernel
from attnc.compiler.machine.flow import Instruction, blocks, body, loops
from attnc.compiler.machine.mix import mix_of
from attnc.compiler.machine.report import KernelReport, analyse, loop_mix

GPUS = sorted(name for name, target in CAPABILITIES.items() if target.gpu is not None)
CONFIGS: dict[str, dict[str, Any]] = {"hip": {"num_warps": 4}, "cuda": {}}
"""Eight warps for 128 rows on NVIDIA, four of 64 lanes on AMD."""


def report(target: str, **changes: Any) -> KernelReport:
    return analyse(made(target, **changes), capability(target))


def gates(found: KernelReport) -> set[str]:
    return {finding.gate for finding in found.gates}


def test_a_report_of_good_code(hopper: Binary, hopper_report: KernelReport) -> None:
    found = hopper_report
    assert found.gates == ()
    assert (found.spills, found.stack, found.shared) == (0, 0, hopper.shared)
    assert found.tensor_core == 2 * 64 // 16  # two products of 64 × 64, 16 deep, for each warpgroup's 64 rows
    assert found.mufu == 64 * 64 // 128 + 2  # one exp2 for each score, one for each of a thread's two rows
    assert found.loads["LDGSTS.128"] == 2 * 64 * 64 * 2 // 16 // hopper.threads
    assert found.occupancy.programs >= 2
    assert found.mask_signature["FSEL"] == 0


def test_a_report_is_json(hopper_report: KernelReport) -> None:
    data = hopper_report.as_dict()
    assert json.loads(json.dumps(data)) == data
    assert set(data) >= {
        "name", "target", "registers", "spills", "stack", "shared", "occupancy", "tensor_core", "loads", "mufu",
        "length", "non_matrix_per_matrix", "gates",
    }  # fmt: skip
    assert set(data["occupancy"]) == {"programs", "limit"}


def test_targets_without_machine_code(hopper: Binary) -> None:
    with pytest.raises(ValueError, match="cpu"):
        analyse(hopper, capability("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("target", GPUS)
def test_every_gpu_passes_the_gates(target: str) -> None:
    gpu = capability(target).gpu
    assert gpu is not None
    changes = CONFIGS[gpu.backend] | ({"BLOCK_N": 128} if target == "sm_100" else {})
    found = report(target, **changes)
    assert found.gates == ()
    assert found.tensor_core > 0
    assert found.occupancy.programs > 0


@pytest.mark.slow
def test_addresses_not_known_to_be_aligned() -> None:
    found = report("sm_90", aligned=False)
    assert "loads" in gates(found)
    assert "LDG.16" in found.loads


@pytest.mark.slow
def test_too_few_warps_spill_and_serialise() -> None:
    found = report("sm_90", num_warps=4, BLOCK_N=128, HEAD_DIM=128)
    assert gates(found) == {"spills", "stack", "serialised"}


@pytest.mark.slow
def test_two_pipelined_loops_serialise() -> None:
    """The products of the first loop are still under way where the second begins."""
    assert gates(report("sm_90", MASKED_STAGES=2)) == {"serialised"}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_120", "gfx942"])
def test_too_much_shared_memory(target: str) -> None:
    found = report(target, num_warps=4, num_stages=4, HEAD_DIM=128, BLOCK_N=128)
    assert "shared" in gates(found)
    assert found.occupancy.programs == 0


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_a_loop_without_a_mask_is_that_of_a_kernel_without_one(target: str) -> None:
    """But for a few comparisons; the loop with a mask chooses at least once for each of a thread's scores."""
    gpu = capability(target).gpu
    assert gpu is not None
    plain, causal = (made(target, **CONFIGS[gpu.backend], CAUSAL=causal) for causal in (0, 1))
    masked, whole = sorted((signature(loop, gpu) for loop in product_loops(causal, gpu)), key=total, reverse=True)
    without = loop_mix(plain, capability(target)).mask_signature
    assert loop_mix(causal, capability(target)).mask_signature == whole
    assert all(abs(whole[name] - without[name]) <= 4 for name in without)
    assert total(masked) - total(whole) >= 128 * 64 // causal.threads


def made(target: str, **changes: Any) -> Binary:
    return compile_kernel(samples.TEXT, samples.launch(**changes), capability(target))


def product_loops(kernel: Binary, gpu: Gpu) -> list[tuple[Instruction, ...]]:
    text = sass.parse(sass.disassemble(kernel.code)) if gpu.backend == "cuda" else amdgcn.parse(kernel.assembly)
    flow = blocks(text)
    found = [body(text, flow, loop) for loop in loops(flow)]
    return [loop for loop in found if any(one.name.startswith(gpu.matrix) for one in loop)]


def signature(loop: tuple[Instruction, ...], gpu: Gpu) -> Mapping[str, int]:
    return mix_of(loop, gpu).mask_signature


def total(counts: Mapping[str, int]) -> int:
    return sum(counts.values())
