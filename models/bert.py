"""BERT: a bidirectional encoder with learned positions, post-norm blocks and a padding mask."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnc.models.layers import MultiHead, padding_mask, seeded, token_inputs


@dataclass(frozen=True)
class Config:
    """Sizes of the model; the defaults are BERT base."""

    vocab_size: int = 30522
    max_positions: int = 512
    segments: int = 2
    width: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3072
    eps: float = 1e-12


class Block(nn.Module):
    """Attention and MLP, each added to the stream and then normalised."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = MultiHead(config.width, config.heads)
        self.attention_norm = nn.LayerNorm(config.width, config.eps)
        self.up = nn.Linear(config.width, config.hidden)
        self.down = nn.Linear(config.hidden, config.width)
        self.mlp_norm = nn.LayerNorm(config.width, config.eps)

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:
        """x [B, S, width] to the same shape."""
        x = self.attention_norm(x + self.attention(x, visible))
        output: Tensor = self.mlp_norm(x + self.down(functional.gelu(self.up(x))))
        return output


class Bert(nn.Module):
    """The encoder; no pooler and no head."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.positions = nn.Embedding(config.max_positions, config.width)
        self.segments = nn.Embedding(config.segments, config.width)
        self.norm = nn.LayerNorm(config.width, config.eps)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Hidden states [B, S, width] of input_ids int64 [B, S]; attention_mask [B, S], nonzero for real tokens.

        Every token is in segment 0. S is at most ``config.max_positions``.
        """
        length = input_ids.shape[1]
        visible = self.pattern(length, input_ids.device)
        if attention_mask is not None:
            real = padding_mask(attention_mask)
            visible = real if visible is None else visible & real
        positions = torch.arange(length, device=input_ids.device)
        x: Tensor = self.norm(self.tokens(input_ids) + self.positions(positions) + self.segments.weight[0])
        for block in self.blocks:
            x = block(x, visible)
        return x

    def pattern(self, length: int, device: torch.device) -> Tensor | None:
        """Which keys a query may see, padding apart: None, all of them; of sparse relatives bool [1, 1, S, S]."""
        return None

    def example_inputs(self, batch: int = 2, length: int = 16) -> dict[str, Tensor]:
        """Keyword arguments for :meth:`forward`: random tokens and the padding mask of a ragged, right-padded batch."""
        return token_inputs(self.config.vocab_size, batch, length)


def tiny() -> Bert:
    """Two layers of width 64, random weights: for tests."""
    return seeded(Bert(Config(vocab_size=256, width=64, layers=2, heads=4, hidden=128)))


def small() -> Bert:
    """Four layers of width 512, random weights: for timing."""
    return seeded(Bert(Config(vocab_size=4096, max_positions=4096, width=512, layers=4, heads=8, hidden=2048)))
