"""Machine code of one kernel in figures, ready for JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnc.codegen.targets import Capability
from attnc.compiler.machine import amdgcn, sass
from attnc.compiler.machine.build import Binary
from attnc.compiler.machine.flow import main_loop
from attnc.compiler.machine.gates import Finding, judge
from attnc.compiler.machine.mix import Mix, mix_of
from attnc.compiler.machine.occupancy import Occupancy, occupancy


@dataclass(frozen=True)
class KernelReport:
    """What was read from a kernel's machine code. Loops and counts are those of its main loop."""

    name: str
    target: str
    registers: int
    """Of one thread."""
    spills: int
    """Bytes of one thread, stored and loaded."""
    stack: int
    shared: int
    """Bytes of one program."""
    occupancy: Occupancy
    length: int
    """Instructions."""
    tensor_core: int
    """Matrix instructions."""
    non_matrix_per_matrix: float | None
    mufu: int
    """exp2 and the like."""
    loads: Mapping[str, int]
    """By instruction and bits of one thread."""
    mask_signature: Mapping[str, int]
    gates: tuple[Finding, ...]
    """Those that are shut."""

    def as_dict(self) -> dict[str, Any]:
        """Only what JSON has: dictionaries, lists, texts, numbers and None."""
        data = dataclasses.asdict(self)
        return data | {"gates": list(data["gates"])}


def loop_mix(binary: Binary, target: Capability) -> Mix:
    """The main loop's instructions, counted. Raises ValueError for a target that is no GPU."""
    gpu = target.gpu
    if gpu is None:
        raise ValueError(f"{target.name} has no machine code to read")
    cuda = gpu.backend == "cuda"
    program = sass.parse(sass.disassemble(binary.code)) if cuda else amdgcn.parse(binary.assembly)
    return mix_of(main_loop(program, gpu.matrix), gpu)


def analyse(binary: Binary, target: Capability) -> KernelReport:
    """Read and judge a kernel. Raises ValueError for a target that is no GPU."""
    mix = loop_mix(binary, target)
    assert target.gpu is not None
    share = mix.non_matrix_per_matrix
    return KernelReport(
        name=binary.kernel,
        target=target.name,
        registers=binary.registers,
        spills=binary.spill_stores + binary.spill_loads,
        stack=binary.stack,
        shared=binary.shared,
        occupancy=occupancy(binary, target.gpu),
        length=mix.length,
        tensor_core=mix.matrix,
        non_matrix_per_matrix=None if share is None else round(share, 2),
        mufu=mix.kinds.get("mufu", 0),
        loads=mix.loads,
        mask_signature=mix.mask_signature,
        gates=judge(binary, mix, target),
    )
