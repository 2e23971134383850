"""BERT: a bidirectional encoder with learned positions, post-norm blocks and a padding mask."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnc.models.layers import attend, merge_heads, padding_mask, seeded, split_heads, token_inputs


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


class Attention(nn.Module):
    """Bidirectional self-attention."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.scale = (config.width // config.heads) ** -0.5
        self.q = nn.Linear(config.width, config.width)
        self.k = nn.Linear(config.width, config.width)
        self.v = nn.Linear(config.width, config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:
        """x [B, S, width], visible bool [B, 1, 1, S] or None; returns [B, S, width]."""
        q, k, v = (split_heads(project(x), self.heads) for project in (self.q, self.k, self.v))
        output: Tensor = self.out(merge_heads(attend(q, k, v, visible, self.scale)))
        return output


class Block(nn.Module):
    """Attention and MLP, each added to the stream and then normalised."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = Attention(config)
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
        visible = None if attention_mask is None else padding_mask(attention_mask)
        positions = torch.arange(length, device=input_ids.device)
        x: Tensor = self.norm(self.tokens(input_ids) + self.positions(positions) + self.segments.weight[0])
        for block in self.blocks:
            x = block(x, visible)
        return x

    def example_inputs(self, batch: int = 2, length: int = 16) -> dict[str, Tensor]:
        """Keyword arguments for :meth:`forward`: random tokens and the padding mask of a ragged, right-padded batch."""
        return token_inputs(self.config.vocab_size, batch, length)


def tiny() -> Bert:
    """Two layers of width 64, random weights: for tests."""
    return seeded(Bert(Config(vocab_size=256, width=64, layers=2, heads=4, hidden=128)))


def small() -> Bert:
    """Four layers of width 512, random weights: for timing."""
    return seeded(Bert(Config(vocab_size=4096, max_positions=4096, width=512, layers=4, heads=8, hidden=2048)))
