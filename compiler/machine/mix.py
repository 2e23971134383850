"""What the instructions of a loop do: how many of each kind, how wide its loads are, what its mask costs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from attnc.codegen.targets import Gpu
from attnc.compiler.machine.flow import Instruction

KINDS = {
    "cuda": {
        "mufu": r"MUFU\b",
        "float": r"[FH](FMA|ADD|MUL|MNMX)[23]?\b",
        "select": r"F?SEL\b",
        "compare": r"[FI]SETP\b",
        "convert": r"[FI]2[FI]P?\b",
        "load": r"(LDG|LDGSTS|LDS|LDSM|LD|UTMALDG|UBLKCP)\b",
        "store": r"(STG|STS|STSM|ST|UTMASTG)\b",
        "local": r"(LDL|STL)\b",
        "barrier": r"(BAR|SYNCS|MEMBAR|FENCE)\b",
        "wait": r"WARPGROUP\.DEPBAR\b",
    },
    "hip": {
        "mufu": r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_",
        "float": r"v_(pk_)?(fma|fmac|mad|mac|add|sub|subrev|mul|max|min|max3|min3|med3)_f(16|32|64)",
        "select": r"v_cndmask_",
        "compare": r"v_cmpx?_",
        "convert": r"v_cvt_",
        "load": r"(global|buffer|flat)_load_|ds_read",
        "store": r"(global|buffer|flat)_store_|ds_write",
        "local": r"scratch_(load|store)_",
        "barrier": r"s_barrier",
        "wait": r"s_waitcnt",
    },
}
"""How the names of each kind begin: ``mufu`` are exp2, log2, reciprocals; ``local`` is spilled or stack memory;
``wait`` is for matrix products under way (NVIDIA) or for memory (AMD)."""

MASKING = {"cuda": ("ISETP", "FSEL", "SEL", "FSETP"), "hip": ("v_cmp", "v_cndmask")}
"""What a mask leaves in a loop: a choice for each score of a thread, and comparisons. A few of both come from elsewhere
and vary from kernel to kernel, with how copies ahead of the loop are kept in bounds."""

WIDTHS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}
"""Bits of an NVIDIA load by modifier; 32 without one. ``LTC128B`` is a hint to the cache and no width."""
AMD_WIDTHS = {r"_dwordx(\d)": 32, r"_dword()": 32, r"_[bui](\d+)": 1, r"_[us]?short()": 16, r"_[us]?byte()": 8}
"""Ends of an AMD load's name, and the bits that one unit of its number stands for."""


@dataclass(frozen=True)
class Mix:
    """The instructions of one loop, counted."""

    length: int
    """All of them."""
    matrix: int
    """Matrix instructions."""
    kinds: Mapping[str, int]
    """Counts by the kinds of ``KINDS``; what has no kind (integers, addresses, moves) is left out."""
    loads: Mapping[str, int]
    """Loads by instruction and bits of one thread, ``LDGSTS.128``; by instruction alone where a tile is meant."""
    mask_signature: Mapping[str, int]
    """Counts of ``MASKING``: but for a few, the same in a loop without a mask and in that of a kernel that has none."""

    @property
    def non_matrix_per_matrix(self) -> float | None:
        """Other instructions for each matrix instruction; None where there is none."""
        return (self.length - self.matrix) / self.matrix if self.matrix else None


def mix_of(instructions: Iterable[Instruction], gpu: Gpu) -> Mix:
    """Count the instructions of a loop."""
    names = [one.name for one in instructions]
    others = [name for name in names if not name.startswith(gpu.matrix)]
    kinds = Counter(kind for name in others for kind in _kinds(name, gpu.backend))
    width = _width if gpu.backend == "cuda" else _amd_width
    loads = Counter(width(name) for name in others if "load" in _kinds(name, gpu.backend))
    masking = {start: sum(name.startswith(start) for name in others) for start in MASKING[gpu.backend]}
    return Mix(len(names), len(names) - len(others), dict(kinds), dict(loads), masking)


def _kinds(name: str, backend: str) -> list[str]:
    return [kind for kind, start in KINDS[backend].items() if re.match(start, name)]


def _width(name: str) -> str:
    base, *modifiers = name.split(".")
    if base in ("LDSM", "UTMALDG", "UBLKCP"):
        return base
    return f"{base}.{next((WIDTHS[m] for m in modifiers if m in WIDTHS), 32)}"


def _amd_width(name: str) -> str:
    """``global_load_dwordx4`` → ``global_load.128``, ``ds_read2_b64`` → ``ds_read2.64``."""
    for end, unit in AMD_WIDTHS.items():
        if found := re.search(end, name):
            return f"{name[: found.start()]}.{unit * int(found[1] or 1)}"
    return name
