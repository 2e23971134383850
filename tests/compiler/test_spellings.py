"""However attention is written, it is found, and the result is right."""

from __future__ import annotations

import pytest
import torch

from benchmarks.cases.runs import run_function
from benchmarks.cases.spellings import CASES, Case

HALF = ("select", "alibi", "softcap", "float32_softmax", "float32_scores", "repeated_heads", "head_mask", "nan_guard")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_float32(case: Case) -> None:
    outcome = run_function(case.run, case.inputs())
    assert outcome.right, str(outcome)
    assert outcome.fused == case.fuses, str(outcome)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize("case", [c for c in CASES if c.name in HALF], ids=lambda case: case.name)
def test_half(case: Case, dtype: torch.dtype) -> None:
    outcome = run_function(case.run, case.inputs(dtype))
    assert outcome.right and outcome.fused == 1, str(outcome)


def test_every_softmax_left_alone_has_its_code() -> None:
    for case in CASES:
        if not case.fuses:
            outcome = run_function(case.run, case.inputs())
            assert outcome.codes == [case.code]
