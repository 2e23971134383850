"""One case of the matrix, compiled and run in the interpreter's process, judged by the numerics policy."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

from attnc.compiler import api
from attnc.compiler.machine.variants import VARIANTS, Model
from attnc.runtime.abi import DTYPES
from benchmarks.policy import Float64, judge, widened
from tests.triton.kernel_matrix import Case
from tests.triton.worker import interpreted

REACH = 44
LENGTHS = {"odd": 77, "one": 1, "dead": 70}


@dataclass(frozen=True)
class Finding:
    """What a run showed: fused attentions of all, and the worst error with its bound."""

    fused: int
    total: int
    error: float
    bound: float


def run(variant: str, head_dim: int, rows: str, dtype: str, seed: int) -> list[Finding]:
    """Judge a kernel by the numerics policy; with dead rows once for each kind of fill. Results are poisoned first."""
    torch.manual_seed(seed)
    fills = (float("-inf"), torch.finfo(DTYPES[dtype]).min) if rows == "dead" else (float("-inf"),)
    return [
        _run(Model(VARIANTS[variant], rows == "dead", fill, REACH), head_dim, rows, DTYPES[dtype]) for fill in fills
    ]


def _run(model: Model, head_dim: int, rows: str, dtype: torch.dtype) -> Finding:
    padded = rows == "dead"
    example = model.variant.inputs(head_dim, dtype, padded=padded)
    program = api.compile(
        model, example, dynamic_shapes=model.variant.dims(padded), options={"target": "triton-interpret"}
    )
    args = model.variant.inputs(head_dim, dtype, batch=2, length=LENGTHS[rows], padded=padded)
    with torch.no_grad():
        ours, eager = program(*args), model(*args)
        with Float64():
            exact: Tensor = model(*(widened(x) for x in args))
    verdict = judge(ours, eager, exact)
    return Finding(program.report.fused, program.report.total, verdict.ours, verdict.bound)


def check(case: Case, version: str) -> None:
    """Run a case under a version of Triton. Raises AssertionError where it isn't fused or out of bounds."""
    seed = zlib.crc32(str(case).encode())
    found = interpreted(version).call(
        "tests.triton.run_case:run", case.variant, case.head_dim, case.rows, case.dtype, seed
    )
    assert found
    for one in found:
        assert one.fused == one.total == 1
        assert one.error <= one.bound, str(one)
