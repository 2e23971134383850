"""The whole matrix: every model, implementation and dtype; each model once with Inductor and once with gradients."""

from __future__ import annotations

import pytest
import torch

from benchmarks.cases.runs import Outcome, run_function, run_model, run_spelling, run_training, torch_compilations
from benchmarks.cases.spellings import CASES, Case
from benchmarks.cases.transformers import FAMILIES, Family
from benchmarks.cases.traps import PAIRS, Pair

pytestmark = pytest.mark.slow

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SIZES = ("one sequence", "odd length", "dynamic")
MATRIX = [(f, i, d) for f in FAMILIES for i in f.implementations for d in DTYPES[:2]]


def name(value: object) -> str:
    return getattr(value, "name", str(value)).removeprefix("torch.").replace(" ", "-")


@pytest.mark.parametrize(("chosen", "implementation", "dtype"), MATRIX, ids=name)
def test_aten(chosen: Family, implementation: str, dtype: torch.dtype) -> None:
    judged(run_model(chosen, implementation, dtype), chosen)


@pytest.mark.parametrize("chosen", FAMILIES, ids=name)
def test_inductor(chosen: Family) -> None:
    judged(run_model(chosen, chosen.implementations[-1], host="inductor"), chosen)


@pytest.mark.parametrize("chosen", FAMILIES, ids=name)
def test_backward(chosen: Family) -> None:
    judged(run_training(chosen), chosen)


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=name)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_spelling(case: Case, dtype: torch.dtype) -> None:
    outcome = run_function(case.run, case.inputs(dtype))
    assert outcome.right and outcome.fused == case.fuses, str(outcome)


@pytest.mark.parametrize("sizes", [((1, 64),), ((1, 33),), ((2, 64), (3, 17), (2, 33), (4, 40))], ids=SIZES)
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=name)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_sizes_of_spelling(case: Case, dtype: torch.dtype, sizes: tuple[tuple[int, int], ...]) -> None:
    outcome = run_spelling(case, dtype, sizes)
    compilations = len(outcome.reports)
    assert outcome.right and outcome.fused == case.fuses * compilations, str(outcome)
    if compilations > 1:
        assert compilations == torch_compilations(case, dtype, sizes), "a new length must not compile again"


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=name)
@pytest.mark.parametrize("side", ["trap", "twin"])
@pytest.mark.parametrize("pair", PAIRS, ids=name)
def test_pair(pair: Pair, side: str, dtype: torch.dtype) -> None:
    outcome = run_function(getattr(pair, side), pair.inputs(dtype))
    assert outcome.right, str(outcome)
    assert (set(outcome.codes), outcome.fused) == pair.expected(side), str(outcome)


def judged(outcome: Outcome, chosen: Family) -> None:
    assert outcome.right and outcome.fused == chosen.sites, str(outcome)
    assert len(outcome.reports) == 1, "a new length must not compile again"
