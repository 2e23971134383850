"""Longformer: BERT with a sliding window and a few global tokens at the start.

Beltagy et al. 2020, https://arxiv.org/abs/2004.05150. Global and local attention share their projections here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnc.models import bert
from attnc.models.layers import seeded


@dataclass(frozen=True)
class Config(bert.Config):
    """Sizes of the model; the defaults are Longformer base."""

    vocab_size: int = 50265
    max_positions: int = 4096
    segments: int = 1
    window: int = 256
    """A query sees this many keys on each side."""
    global_tokens: int = 1
    """These first tokens see every token and are seen by it."""


class Longformer(bert.Bert):
    """The encoder."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.window, self.global_tokens = config.window, config.global_tokens

    def pattern(self, length: int, device: torch.device) -> Tensor:
        """Bool [1, 1, S, S]: |q − k| ≤ window, or one of the two is a global token."""
        positions = torch.arange(length, device=device)
        query, key = positions[:, None], positions[None, :]
        near = (query - key).abs() <= self.window
        return (near | (query < self.global_tokens) | (key < self.global_tokens))[None, None]


TINY = Config(256, max_positions=512, width=64, layers=2, heads=4, hidden=128, window=4, global_tokens=2)
SMALL = Config(4096, width=512, layers=4, heads=8, hidden=2048, window=64, global_tokens=16)


def tiny() -> Longformer:
    """Two layers of width 64, four keys on each side, two global tokens, random weights: for tests."""
    return seeded(Longformer(TINY))


def small() -> Longformer:
    """Four layers of width 512, 64 keys on each side, 16 global tokens, random weights: for timing."""
    return seeded(Longformer(SMALL))
