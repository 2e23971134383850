"""BigBird: BERT whose blocks of queries see their neighbours, the first and last blocks, and a few random ones.

Zaheer et al. 2020, https://arxiv.org/abs/2007.14062. The random blocks are drawn once, when the model is made.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnc.models import bert
from attnc.models.layers import seeded


@dataclass(frozen=True)
class Config(bert.Config):
    """Sizes of the model; the defaults are BigBird base."""

    vocab_size: int = 50358
    max_positions: int = 4096
    block: int = 64
    """Tokens in a block."""
    random_blocks: int = 3
    """Blocks drawn for each block of queries."""


class BigBird(bert.Bert):
    """The encoder. ``drawn`` int64 [random_blocks, blocks]: which blocks a block of queries sees at random.

    Only blocks before its own are drawn, so that they exist at every length.
    """

    drawn: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.block = config.block
        blocks = -(-config.max_positions // config.block)
        chances = torch.rand(config.random_blocks, blocks, generator=torch.Generator().manual_seed(0))
        self.register_buffer("drawn", (chances * torch.arange(1, blocks + 1)).to(torch.int64))

    def pattern(self, length: int, device: torch.device) -> Tensor:
        """Bool [1, 1, S, S]: a query's block and a key's are neighbours, or one is first or last, or it was drawn."""
        blocks = torch.arange(length, device=device) // self.block
        query, key = blocks[:, None], blocks[None, :]
        last = (length - 1) // self.block
        visible = ((query - key).abs() <= 1) | (query == 0) | (key == 0) | (query == last) | (key == last)
        for drawn in self.drawn:
            visible = visible | (drawn[blocks][:, None] == key)
        return visible[None, None]


TINY = Config(256, max_positions=512, width=64, layers=2, heads=4, hidden=128, block=4, random_blocks=2)
SMALL = Config(4096, width=512, layers=4, heads=8, hidden=2048, block=32, random_blocks=3)


def tiny() -> BigBird:
    """Two layers of width 64, blocks of 4 tokens, two random ones, random weights: for tests."""
    return seeded(BigBird(TINY))


def small() -> BigBird:
    """Four layers of width 512, blocks of 32 tokens, three random ones, random weights: for timing."""
    return seeded(BigBird(SMALL))
