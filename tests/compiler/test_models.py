"""Unmodified transformers: every attention fused and right, at lengths never seen when compiling.

A pairwise choice of model, implementation and dtype; the whole matrix is the acceptance run's.
"""

from __future__ import annotations

import pytest
import torch

from benchmarks.cases.runs import run_model, run_training
from benchmarks.cases.transformers import family

CHOICE = (
    ("attnc-llama", "eager", torch.float32),
    ("attnc-mistral", "eager", torch.bfloat16),
    ("llama", "sdpa", torch.bfloat16),
    ("gemma3", "eager", torch.float32),
    ("bert", "sdpa", torch.float32),
    ("whisper", "eager", torch.float32),
    ("vit", "sdpa", torch.bfloat16),
)


@pytest.mark.parametrize(("name", "implementation", "dtype"), CHOICE, ids=lambda x: str(x).removeprefix("torch."))
def test_model(name: str, implementation: str, dtype: torch.dtype) -> None:
    chosen = family(name)
    outcome = run_model(chosen, implementation, dtype)
    assert outcome.right and outcome.fused == chosen.sites, str(outcome)
    assert len(outcome.reports) == 1, "a new length must not compile again"


@pytest.mark.parametrize(("name", "implementation"), [("attnc-gpt2", "eager"), ("llama", "sdpa")])
def test_gradients(name: str, implementation: str) -> None:
    chosen = family(name)
    outcome = run_training(chosen, implementation)
    assert outcome.right and outcome.fused == chosen.sites, str(outcome)
    assert any(note.code == "ATTNC-TRAINING-RECOMPUTE" for report in outcome.reports for note in report.notes)


def test_inductor_host() -> None:
    outcome = run_model(family("attnc-llama"), host="inductor")
    assert outcome.right and outcome.fused == 2, str(outcome)
