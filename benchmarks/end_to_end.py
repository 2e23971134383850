"""A whole model: MiniLM by attnc from naive attention, beside Inductor on SDPA, Inductor on that code, and eager."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnc.models import minilm
from attnc.models.layers import token_inputs
from benchmarks.timing import Timing, interleaved

SIZES = ((1, 128), (8, 256))


class Sdpa(nn.Module):
    """transformers' BERT on SDPA, with the same weights."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertModel

        self.bert = BertModel.from_pretrained(minilm.folder(), attn_implementation="sdpa", add_pooling_layer=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Hidden states [B, S, 384]."""
        hidden: Tensor = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return hidden


def measure(batch: int, length: int, runs: int) -> dict[str, Timing]:
    """Times of one forward pass over a padded batch. Raises AssertionError where two contenders disagree."""
    torch.compiler.reset()
    model, sdpa = minilm.load(), Sdpa().eval()
    inputs = token_inputs(model.config.vocab_size, batch, length)
    contenders: dict[str, Callable[..., Any]] = {
        "attnc": torch.compile(model, backend="attnc"),
        "inductor on sdpa": torch.compile(sdpa),
        "inductor": torch.compile(model),
        "eager": model,
    }
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        right = model(**inputs)[real]
        for name, run in contenders.items():
            error = (run(**inputs)[real] - right).abs().max().item()
            assert error < 1e-4, f"{name} is off by {error:.1e}"
        return interleaved({name: partial(run, **inputs) for name, run in contenders.items()}, runs=runs, warmup=2)
