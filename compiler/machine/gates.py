"""What machine code of an attention must not show, as a table: each gate gives None or the reason it is shut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from attnc.codegen.targets import Capability, Gpu
from attnc.compiler.machine.build import Binary
from attnc.compiler.machine.mix import Mix
from attnc.compiler.machine.occupancy import TENSOR_COLUMNS

Gate = Callable[[Binary, Mix, Gpu], str | None]


@dataclass(frozen=True)
class Finding:
    """A gate that is shut."""

    gate: str
    reason: str


def spills(binary: Binary, mix: Mix, gpu: Gpu) -> str | None:
    """Registers kept in memory. Shut for spills outside the loop as well; the reason says where they are."""
    if not binary.spill_stores and not binary.spill_loads:
        return None
    inside = mix.kinds.get("local", 0)
    where = f"{inside} instructions of the main loop" if inside else "none of it in the main loop"
    return f"{binary.spill_stores} bytes of a thread stored and {binary.spill_loads} loaded, {where}"


def stack(binary: Binary, mix: Mix, gpu: Gpu) -> str | None:
    """Local memory, which lies where global memory does."""
    return f"{binary.stack} bytes of a thread" if binary.stack else None


def shared(binary: Binary, mix: Mix, gpu: Gpu) -> str | None:
    """Shared memory of one program. Compilers do not check it; the driver refuses the launch."""
    return f"{binary.shared} bytes, of {gpu.shared} there are" if binary.shared > gpu.shared else None


def tensor_memory(binary: Binary, mix: Mix, gpu: Gpu) -> str | None:
    """Tensor memory of one program, the same."""
    over = binary.tensor_memory > TENSOR_COLUMNS
    return f"{binary.tensor_memory} columns, of {TENSOR_COLUMNS} there are" if over else None


def registers(binary: Binary, mix: Mix, gpu: Gpu) -> str | None:
    """Registers of one program."""
    wanted = binary.registers * binary.threads
    return f"{wanted} for a program, of {gpu.registers_per_core} there are" if wanted > gpu.registers_per_core else None


def matrix(binary: Binary, mix: Mix, gpu: Gpu) -> str | None:
    """Products by matrix units."""
    return None if mix.matrix else f"no {' or '.join(gpu.matrix)} among {mix.length} instructions of the main loop"


def loads(binary: Binary, mix: Mix, gpu: Gpu) -> str | None:
    """Tiles copied to shared memory 16 bytes at a time or by descriptor. AMD code has no one way to see it by.

    What addresses and strides are not known to be multiples of 16 for shows here.
    """
    if gpu.backend != "cuda" or any(load in mix.loads for load in ("LDGSTS.128", "UTMALDG", "UBLKCP")):
        return None
    seen = ", ".join(f"{count} {load}" for load, count in sorted(mix.loads.items()))
    return f"no LDGSTS.128 and no TMA in the main loop: {seen or 'no loads'}"


def serialised(binary: Binary, mix: Mix, gpu: Gpu) -> str | None:
    """Matrix products of a warpgroup (sm_90) that each wait for the one before."""
    if binary.warnings:
        return "; ".join(binary.warnings)
    waits = mix.kinds.get("wait", 0)
    if "HGMMA" in gpu.matrix and waits >= mix.matrix > 0:
        return f"{waits} waits for {mix.matrix} matrix instructions in the main loop"
    return None


GATES: Mapping[str, Gate] = {
    "spills": spills,
    "stack": stack,
    "shared": shared,
    "tensor_memory": tensor_memory,
    "registers": registers,
    "matrix": matrix,
    "loads": loads,
    "serialised": serialised,
}


def judge(binary: Binary, mix: Mix, target: Capability) -> tuple[Finding, ...]:
    """The shut gates of a kernel whose main loop is ``mix``. Raises ValueError for a target that is no GPU."""
    gpu = target.gpu
    if gpu is None:
        raise ValueError(f"{target.name} has no gates for machine code")
    reasons = {name: gate(binary, mix, gpu) for name, gate in GATES.items()}
    return tuple(Finding(name, reason) for name, reason in reasons.items() if reason is not None)
