"""Unmodified transformers: every attention fused and right, at lengths never seen when compiling.

A choice of model, implementation and dtype; the whole matrix is the acceptance run's.
"""

from __future__ import annotations

import pytest
import torch

from benchmarks.cases.runs import run_model, run_training
from benchmarks.cases.transformers import family

CHOICE = (
    ("attnc-llama", "eager", torch.float32),
    ("llama", "sdpa", torch.bfloat16),
    ("vit", "sdpa", torch.bfloat16),
)

MASKS = {
    "transformer": ("padding",) * 2 + ("causal", "padding") * 2,
    "t5": ("padding",) * 2 + ("causal", "padding") * 2,
    "bloom": ("causal & padding",) * 2,
    "bloom-six": ("causal & padding",) * 2,
    "falcon": ("causal & padding",) * 2,
    "sparse": ("causal, custom & padding",) * 2,
    "longformer": ("global 2 + window -4..+4 & padding",) * 2,
    "vit": ("full",) * 2,
    "whisper": ("full",) * 2 + ("causal", "full") * 2,
    "captioner": ("full",) * 2 + ("causal", "full") * 2,
}
"""What each of our models' attentions is, in order."""
ROPES = {"falcon": 4, "captioner": 4}


@pytest.mark.parametrize(("name", "implementation", "dtype"), CHOICE, ids=lambda x: str(x).removeprefix("torch."))
def test_model(name: str, implementation: str, dtype: torch.dtype) -> None:
    chosen = family(name)
    outcome = run_model(chosen, implementation, dtype)
    assert outcome.right and outcome.fused == chosen.sites, str(outcome)
    assert len(outcome.reports) == 1, "a new length must not compile again"


@pytest.mark.slow
@pytest.mark.parametrize("name", MASKS)
def test_what_our_models_are(name: str) -> None:
    outcome = run_model(family(f"attnc-{name}"))
    assert outcome.right, str(outcome)
    (report,) = outcome.reports
    assert all(site.fused for site in report.sites), str(report)
    assert tuple(site.mask_name for site in report.sites) == MASKS[name]
    if name == "sparse":
        assert "(k <= q) & ((k - q > -5) | ((q - k) % 5 == 0))" in report.sites[0].mask
    assert len(report.ropes) == ROPES.get(name, 0)
    assert "ATTNC-DENSE-SIDE" not in {note.code for note in report.notes}


@pytest.mark.parametrize(("name", "implementation"), [("attnc-gpt2", "eager"), ("llama", "sdpa")])
def test_gradients(name: str, implementation: str) -> None:
    chosen = family(name)
    outcome = run_training(chosen, implementation)
    assert outcome.right and outcome.fused == chosen.sites, str(outcome)
    assert any(note.code == "ATTNC-TRAINING-RECOMPUTE" for report in outcome.reports for note in report.notes)


def test_inductor_host() -> None:
    outcome = run_model(family("attnc-llama"), host="inductor")
    assert outcome.right and outcome.fused == 2, str(outcome)
