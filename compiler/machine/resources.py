"""What the assemblers say a kernel needs: registers, spills, stack. Read from their own words, never guessed."""

from __future__ import annotations

import re
from dataclasses import dataclass

WARNING = re.compile(r"\((C75\d\d)\) (?:Potential Performance Loss: )?(.*)")
"""What ptxas says of wgmma instructions that cannot run asynchronously."""


@dataclass(frozen=True)
class Resources:
    """Needs of one thread (NVIDIA) or lane (AMD)."""

    registers: int
    """32-bit registers; on AMD accumulators included."""
    spill_stores: int
    """Bytes written to memory because registers did not suffice."""
    spill_loads: int
    """Bytes read back."""
    stack: int
    """Bytes of local memory, spills included."""
    warnings: tuple[str, ...] = ()
    """Of ptxas: ``C7515 wgmma.mma_async instructions are serialized due to …``."""


def from_ptxas(log: str, kernel: str) -> Resources:
    """Read the output of ``ptxas -v``. Raises ValueError where it does not tell of the kernel."""
    memory = re.search(
        rf"Function properties for {re.escape(kernel)}\n"
        r"\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads",
        log,
    )
    used = re.search(r"Used (\d+) registers", log)
    if memory is None or used is None:
        raise ValueError(f"ptxas does not say what {kernel} needs: {log!r}")
    stack, stores, loads = map(int, memory.groups())
    warnings = tuple(f"{code} {text.strip()}" for code, text in WARNING.findall(log))
    return Resources(int(used[1]), stores, loads, stack, warnings)


def from_amdgcn(assembly: str) -> Resources:
    """Read the metadata at the end of AMD assembly. Raises ValueError where an entry is missing.

    Scalar registers are spilled to lanes of vector registers, which costs no memory; where those do not suffice either,
    it shows as stack. So only vector registers count as spilled.
    """
    spilled = 4 * _entry(assembly, "vgpr_spill_count")
    stack = _entry(assembly, "private_segment_fixed_size")
    return Resources(_entry(assembly, "vgpr_count"), spilled, spilled, stack)


def _entry(assembly: str, name: str) -> int:
    found = re.search(rf"^ *(?:- )?\.{name}: *(\d+)$", assembly, re.MULTILINE)
    if found is None:
        raise ValueError(f"no .{name} in the assembly's metadata")
    return int(found[1])
