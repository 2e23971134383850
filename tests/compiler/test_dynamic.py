"""One compilation serves every batch and length: twelve decoders, ten pairs each.

Torch compiles sizes 0 and 1 for themselves, so that the pairs start at 2.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from attnc import models
from attnc.compiler.backend import backend
from attnc.compiler.report import reports
from benchmarks.policy import Float64, judge

pytestmark = pytest.mark.slow

OURS = ("bloom-six", "falcon", "gpt2", "llama", "mistral", "sparse")
THEIRS = ("bloom", "gemma3_text", "gpt_neox", "olmo2", "phi", "qwen3")
LAYERS = 2
VOCABULARY = 128
SIZES = ((3, 17), (2, 2), (2, 7), (5, 3), (4, 33), (7, 20), (2, 64), (3, 65), (6, 100), (2, 131))
"""Batch and length; the first pair is the one compiled with, the last is longer than a tile."""


def inputs(batch: int, length: int) -> dict[str, Tensor]:
    """Tokens, and a mask that pads the last row on the left."""
    generator = torch.Generator().manual_seed(length)
    keep = torch.ones(batch, length, dtype=torch.int64)
    keep[-1, : length // 3] = 0
    return {"input_ids": torch.randint(0, VOCABULARY, (batch, length), generator=generator), "attention_mask": keep}


def theirs(model_type: str) -> nn.Module:
    """A tiny model of transformers with random weights that returns its logits."""
    from benchmarks.coverage.zoo import build

    model = build(model_type).model

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            logits: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits
            return logits

    return Logits()


NAMES = [*OURS, *(f"hf-{name}" for name in THEIRS)]


@pytest.mark.parametrize("name", NAMES)
def test_one_compilation_serves_every_size(name: str) -> None:
    one_compilation(name, dynamic=None)


@pytest.mark.parametrize("name", NAMES)
def test_with_nothing_but_dynamic_true(name: str) -> None:
    one_compilation(name, dynamic=True)


def one_compilation(name: str, dynamic: bool | None) -> None:
    """Compile a model once and judge it at every size; the first inputs are marked unless all sizes are dynamic."""
    model = theirs(name.removeprefix("hf-")) if name.startswith("hf-") else models.build(name)
    wide = copy.deepcopy(model).double()
    torch._dynamo.reset()
    before = len(reports())
    compiled = torch.compile(model, backend=backend(host="aten"), dynamic=dynamic)
    for size in SIZES:
        given = inputs(*size)
        for tensor in given.values() if dynamic is None and size == SIZES[0] else ():
            torch._dynamo.mark_dynamic(tensor, (0, 1))
        with torch.no_grad():
            ours, eager = compiled(**given), model(**given)
            with Float64():
                verdict = judge(ours, eager, wide(**given))
        assert verdict.passed, f"{size}: {verdict}"
        assert len(reports()) == before + 1, f"{size} is compiled again"
    report = reports()[-1]
    assert report.fused == report.total == LAYERS, str(report)
