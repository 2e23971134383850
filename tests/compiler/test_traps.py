"""What looks like attention is never rewritten into what it is not, while a twin that differs in one op fuses."""

from __future__ import annotations

import pytest
import torch

from benchmarks.cases.runs import run_function
from benchmarks.cases.traps import PAIRS, Pair

SLOW = {name for i, name in enumerate(pair.name for pair in PAIRS if not pair.code) if i % 3}
"""Of the pairs that fuse on both sides every third is tried in the fast tests."""
EACH = [
    pytest.param(pair, id=pair.name.replace(" ", "-"), marks=[pytest.mark.slow] if pair.name in SLOW else [])
    for pair in PAIRS
]


@pytest.mark.parametrize("pair", EACH)
def test_trap(pair: Pair) -> None:
    outcome = run_function(pair.trap, pair.inputs(torch.float32))
    assert outcome.right, str(outcome)
    assert (set(outcome.codes), outcome.fused) == pair.expected("trap")


@pytest.mark.parametrize("pair", EACH)
def test_twin(pair: Pair) -> None:
    outcome = run_function(pair.twin, pair.inputs(torch.float32))
    assert outcome.right and outcome.fused == pair.attentions, str(outcome)


@pytest.mark.parametrize("pair", [p for p in PAIRS if "dead" in p.name or "fills" in p.name], ids=lambda p: p.name)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_dead_rows_in_half(pair: Pair, dtype: torch.dtype) -> None:
    outcome = run_function(pair.trap, pair.inputs(dtype))
    assert outcome.right and outcome.fused == 1, str(outcome)


def test_there_are_many() -> None:
    """Raise this figure with the list; never lower it. Rotations and forms of softmax have pairs of their own."""
    assert len({pair.name for pair in PAIRS}) >= 79
