"""What the tests of machine code share: a flash attention to compile, and records written by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from attnc.codegen.triton.launch import Launch, Parameter
from attnc.compiler.machine.build import Binary

TEXT = Path(__file__).with_name("flash_kernel.py").read_text()
BINARY = Binary(
    kernel="flash",
    target="sm_90",
    code=b"",
    assembly="",
    shared=65536,
    num_warps=8,
    threads=256,
    global_scratch=0,
    profile_scratch=0,
    registers=126,
    spill_stores=0,
    spill_loads=0,
    stack=0,
)


def binary(**changes: Any) -> Binary:
    """A kernel without machine code that passes every gate, with the given fields changed."""
    return dataclasses.replace(BINARY, **changes)


def launch(
    *, num_warps: int = 8, num_stages: int = 2, aligned: bool = True, dtype: str = "bf16", **constants: int
) -> Launch:
    """How the flash attention of ``flash_kernel.py`` is compiled; ``aligned`` speaks of addresses and strides."""
    assumed = "aligned" if aligned else "nothing"
    pointers = [Parameter(name, f"*{dtype}", assumed) for name in ("Q", "K", "V", "OUT")]
    strides = [
        Parameter(f"{of}_{by}", type_, assumed) for of in "qk" for by, type_ in (("head", "i64"), ("row", "i32"))
    ]
    lengths = [Parameter("Q_LENGTH", "i32"), Parameter("K_LENGTH", "i32")]
    parameters = (*pointers, Parameter("scale", "fp32"), *strides, Parameter("feature", "i32", "one"), *lengths)
    fixed = {"CAUSAL": 1, "MASKED_STAGES": 1, "HEAD_DIM": 64, "BLOCK_M": 128, "BLOCK_N": 64}
    return Launch("flash", parameters, fixed | constants, num_warps, num_stages)
