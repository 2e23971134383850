"""Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU. With a window it is Mistral."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnc.models.layers import (
    RMSNorm,
    attend,
    decoder_mask,
    merge_heads,
    repeat_kv,
    rope_table,
    rotate,
    seeded,
    split_heads,
    token_inputs,
)


@dataclass(frozen=True)
class Config:
    """Sizes of the model; the defaults are Llama 3.2 1B."""

    vocab_size: int = 128256
    width: int = 2048
    layers: int = 16
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 64
    hidden: int = 8192
    theta: float = 500000.0
    eps: float = 1e-5
    window: int | None = None
    """A query sees this many keys, itself the last; None: every earlier one."""


class Attention(nn.Module):
    """Causal self-attention; ``heads // kv_heads`` query heads share a key/value head."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.scale = config.head_dim**-0.5
        self.q = nn.Linear(config.width, config.heads * config.head_dim, bias=False)
        self.k = nn.Linear(config.width, config.kv_heads * config.head_dim, bias=False)
        self.v = nn.Linear(config.width, config.kv_heads * config.head_dim, bias=False)
        self.out = nn.Linear(config.heads * config.head_dim, config.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, visible: Tensor) -> Tensor:
        """x [B, S, width], cos and sin [S, D], visible bool broadcastable to [B, 1, S, S]; returns [B, S, width]."""
        q = rotate(split_heads(self.q(x), self.heads), cos, sin)
        k = rotate(split_heads(self.k(x), self.kv_heads), cos, sin)
        v = split_heads(self.v(x), self.kv_heads)
        groups = self.heads // self.kv_heads
        mixed = attend(q, repeat_kv(k, groups), repeat_kv(v, groups), visible, self.scale)
        output: Tensor = self.out(merge_heads(mixed))
        return output


class Block(nn.Module):
    """Attention and gated MLP, each behind an RMSNorm and added to the stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.width, config.eps)
        self.attention = Attention(config)
        self.mlp_norm = RMSNorm(config.width, config.eps)
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, visible: Tensor) -> Tensor:
        """x [B, S, width] to the same shape; the rest as :meth:`Attention.forward`."""
        x = x + self.attention(self.attention_norm(x), cos, sin, visible)
        normed = self.mlp_norm(x)
        output: Tensor = x + self.down(functional.silu(self.gate(normed)) * self.up(normed))
        return output


class Llama(nn.Module):
    """A decoder with its own output matrix."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width, config.eps)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits [B, S, vocab_size] of input_ids int64 [B, S]; attention_mask [B, S], nonzero for real tokens.

        Positions count from the first column, padding included.
        """
        length = input_ids.shape[1]
        positions = torch.arange(length, device=input_ids.device)
        visible = decoder_mask(length, input_ids.device, self.config.window, attention_mask)
        x = self.tokens(input_ids)
        cos, sin = rope_table(positions, self.config.head_dim, self.config.theta, x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin, visible)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def example_inputs(self, batch: int = 2, length: int = 16) -> dict[str, Tensor]:
        """Keyword arguments for :meth:`forward`: random tokens and the padding mask of a ragged, right-padded batch."""
        return token_inputs(self.config.vocab_size, batch, length)


TINY = Config(vocab_size=256, width=64, layers=2, heads=4, kv_heads=2, head_dim=16, hidden=128, theta=10000.0)
SMALL = Config(vocab_size=4096, width=512, layers=4, heads=8, kv_heads=2, head_dim=64, hidden=1408, theta=10000.0)


def tiny() -> Llama:
    """Two layers of width 64, two query heads to a key/value head, random weights: for tests."""
    return seeded(Llama(TINY))


def small() -> Llama:
    """Four layers of width 512, four query heads to a key/value head, random weights: for timing."""
    return seeded(Llama(SMALL))
