"""GPT-2: learned positions, multi-head causal attention from one packed projection, GELU MLP."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnc.models.layers import attend, causal_mask, merge_heads, padding_mask, seeded, split_heads, token_inputs


@dataclass(frozen=True)
class Config:
    """Sizes of the model; the defaults are GPT-2 (124 M parameters)."""

    vocab_size: int = 50257
    max_positions: int = 1024
    width: int = 768
    layers: int = 12
    heads: int = 12
    eps: float = 1e-5


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.scale = (config.width // config.heads) ** -0.5
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        """x [B, S, width], visible bool broadcastable to [B, 1, S, S]; returns [B, S, width]."""
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        output: Tensor = self.out(merge_heads(attend(q, k, v, visible, self.scale)))
        return output


class Block(nn.Module):
    """Attention and MLP, each behind a LayerNorm and added to the stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width, config.eps)
        self.attention = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.width, config.eps)
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        """x [B, S, width] to the same shape."""
        x = x + self.attention(self.attention_norm(x), visible)
        hidden = functional.gelu(self.up(self.mlp_norm(x)), approximate="tanh")
        output: Tensor = x + self.down(hidden)
        return output


class GPT2(nn.Module):
    """A decoder; the output matrix is the token embedding."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.positions = nn.Embedding(config.max_positions, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, config.eps)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits [B, S, vocab_size] of input_ids int64 [B, S]; attention_mask [B, S], nonzero for real tokens.

        Positions count from the first column, padding included. S is at most ``config.max_positions``.
        """
        length = input_ids.shape[1]
        visible = self.pattern(length, input_ids.device)
        if attention_mask is not None:
            visible = visible & padding_mask(attention_mask)
        x = self.tokens(input_ids) + self.positions(torch.arange(length, device=input_ids.device))
        for block in self.blocks:
            x = block(x, visible)
        return functional.linear(self.norm(x), self.tokens.weight)

    def pattern(self, length: int, device: torch.device) -> Tensor:
        """Which keys a query may see, padding apart: bool [1, 1, S, S], true up to the query itself."""
        return causal_mask(length, device)

    def example_inputs(self, batch: int = 2, length: int = 16) -> dict[str, Tensor]:
        """Keyword arguments for :meth:`forward`: random tokens and the padding mask of a ragged, right-padded batch."""
        return token_inputs(self.config.vocab_size, batch, length)


def tiny() -> GPT2:
    """Two layers of width 64, random weights: for tests."""
    return seeded(GPT2(Config(vocab_size=256, max_positions=512, width=64, layers=2, heads=4)))


def small() -> GPT2:
    """Four layers of width 512, random weights: for timing."""
    return seeded(GPT2(Config(vocab_size=4096, max_positions=4096, width=512, layers=4, heads=8)))
