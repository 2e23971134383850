"""Falcon: multi-query attention with rotary positions, and an MLP beside it rather than behind it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnc.models.layers import (
    FeedForward,
    attend,
    decoder_mask,
    merge_heads,
    rope_table,
    rotate,
    seeded,
    split_heads,
    token_inputs,
)


@dataclass(frozen=True)
class Config:
    """Sizes of the model; the defaults are Falcon 7B."""

    vocab_size: int = 65024
    width: int = 4544
    layers: int = 32
    heads: int = 71
    theta: float = 10000.0
    eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


class Attention(nn.Module):
    """Causal self-attention; every query head reads the one key and value head."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.head_dim = config.heads, config.head_dim
        self.scale = config.head_dim**-0.5
        self.qkv = nn.Linear(config.width, (config.heads + 2) * config.head_dim, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, visible: Tensor) -> Tensor:
        """x [B, S, width], cos and sin [S, D], visible bool broadcastable to [B, 1, S, S]; returns [B, S, width]."""
        q, k, v = torch.split(split_heads(self.qkv(x), self.heads + 2), [self.heads, 1, 1], dim=1)
        mixed = attend(rotate(q, cos, sin), rotate(k, cos, sin), v, visible, self.scale)
        output: Tensor = self.out(merge_heads(mixed))
        return output


class Block(nn.Module):
    """Attention and MLP of one normalised input, both added to the stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width, config.eps)
        self.attention = Attention(config)
        self.mlp = FeedForward(config.width, 4 * config.width, functional.gelu, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, visible: Tensor) -> Tensor:
        """x [B, S, width] to the same shape; the rest as :meth:`Attention.forward`."""
        normed = self.norm(x)
        output: Tensor = x + self.attention(normed, cos, sin, visible) + self.mlp(normed)
        return output


class Falcon(nn.Module):
    """A decoder; the output matrix is the token embedding."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, config.eps)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits [B, S, vocab_size] of input_ids int64 [B, S]; attention_mask [B, S], nonzero for real tokens.

        Positions count from the first column, padding included.
        """
        length = input_ids.shape[1]
        visible = decoder_mask(length, input_ids.device, None, attention_mask)
        x = self.tokens(input_ids)
        positions = torch.arange(length, device=input_ids.device)
        cos, sin = rope_table(positions, self.config.head_dim, self.config.theta, x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin, visible)
        return functional.linear(self.norm(x), self.tokens.weight)

    def example_inputs(self, batch: int = 2, length: int = 16) -> dict[str, Tensor]:
        """Keyword arguments for :meth:`forward`: random tokens and the padding mask of a ragged, right-padded batch."""
        return token_inputs(self.config.vocab_size, batch, length)


def tiny() -> Falcon:
    """Two layers of width 64, four query heads, random weights: for tests."""
    return seeded(Falcon(Config(vocab_size=256, width=64, layers=2, heads=4)))


def small() -> Falcon:
    """Four layers of width 512, eight query heads, random weights: for timing."""
    return seeded(Falcon(Config(vocab_size=4096, width=512, layers=4, heads=8)))
