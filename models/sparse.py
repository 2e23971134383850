"""The Sparse Transformer with its strided pattern: GPT-2 whose queries see few of the earlier keys.

Child et al. 2019, https://arxiv.org/abs/1904.10509, section 4.2, with both halves of the pattern in every head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnc.models import gpt2
from attnc.models.layers import seeded


@dataclass(frozen=True)
class Config(gpt2.Config):
    """Sizes of the model; the defaults are those of a model of images of 32 × 32 pixels with three colours."""

    vocab_size: int = 256
    max_positions: int = 3072
    width: int = 256
    layers: int = 128
    heads: int = 2
    stride: int = 96
    """A query sees this many keys, itself the last, and every key a multiple of it away."""


class SparseTransformer(gpt2.GPT2):
    """A decoder with the strided pattern."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.stride = config.stride

    def pattern(self, length: int, device: torch.device) -> Tensor:
        """Bool [1, 1, S, S]: 0 ≤ q − k, and q − k < stride or q − k a multiple of the stride."""
        positions = torch.arange(length, device=device)
        distance = positions[:, None] - positions[None, :]
        visible = (distance >= 0) & ((distance < self.stride) | (distance % self.stride == 0))
        return visible[None, None]


def tiny() -> SparseTransformer:
    """Two layers of width 64, a stride of 5 keys, random weights: for tests."""
    return seeded(SparseTransformer(Config(max_positions=512, width=64, layers=2, heads=4, stride=5)))


def small() -> SparseTransformer:
    """Four layers of width 512, a stride of 64 keys, random weights: for timing."""
    return seeded(SparseTransformer(Config(4096, max_positions=4096, width=512, layers=4, heads=8, stride=64)))
