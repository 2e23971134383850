"""BLOOM: ALiBi in place of positions, one packed projection, GELU MLP. MPT's attention is the same.

ALiBi: Press et al. 2022, https://arxiv.org/abs/2108.12409.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnc.models.layers import FeedForward, attend, decoder_mask, merge_heads, seeded, token_inputs


@dataclass(frozen=True)
class Config:
    """Sizes of the model; the defaults are BLOOM 560M."""

    vocab_size: int = 250880
    width: int = 1024
    layers: int = 24
    heads: int = 16
    eps: float = 1e-5


def slopes(heads: int) -> list[float]:
    """The slope of each head: 2^(-8/n), 2^(-16/n), … for n heads, a power of two.

    Of another number n is the power below it, and every other slope of 2n heads fills up.
    """
    power = 2 ** int(math.log2(heads))
    first = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    return first + [2.0 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]


def alibi(slope: Tensor, length: int) -> Tensor:
    """slope · (k − q) [H, S, S] in the dtype of ``slope`` [H]."""
    positions = torch.arange(length, device=slope.device)
    return slope[:, None, None] * (positions[None, :] - positions[:, None])


class Attention(nn.Module):
    """Causal self-attention with a bias that falls with the distance."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.scale = (config.width // config.heads) ** -0.5
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, visible: Tensor, bias: Tensor) -> Tensor:
        """x [B, S, width], visible bool broadcastable to [B, 1, S, S], bias [H, S, S]; returns [B, S, width]."""
        batch, length, _ = x.shape
        # a head's query, key and value lie side by side
        q, k, v = self.qkv(x).view(batch, length, self.heads, 3, -1).permute(3, 0, 2, 1, 4).unbind(0)
        output: Tensor = self.out(merge_heads(attend(q, k, v, visible, self.scale, bias)))
        return output


class Block(nn.Module):
    """Attention and MLP, each behind a LayerNorm and added to the stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width, config.eps)
        self.attention = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.width, config.eps)
        self.mlp = FeedForward(config.width, 4 * config.width, nn.GELU(approximate="tanh"))

    def forward(self, x: Tensor, visible: Tensor, bias: Tensor) -> Tensor:
        """x [B, S, width] to the same shape; the rest as :meth:`Attention.forward`."""
        x = x + self.attention(self.attention_norm(x), visible, bias)
        output: Tensor = x + self.mlp(self.mlp_norm(x))
        return output


class Bloom(nn.Module):
    """A decoder; the output matrix is the token embedding. ``slope`` float [heads] is no parameter."""

    slope: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.tokens_norm = nn.LayerNorm(config.width, config.eps)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, config.eps)
        self.register_buffer("slope", torch.tensor(slopes(config.heads)), persistent=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits [B, S, vocab_size] of input_ids int64 [B, S]; attention_mask [B, S], nonzero for real tokens."""
        length = input_ids.shape[1]
        visible = decoder_mask(length, input_ids.device, None, attention_mask)
        bias = alibi(self.slope, length)
        x = self.tokens_norm(self.tokens(input_ids))
        for block in self.blocks:
            x = block(x, visible, bias)
        return functional.linear(self.norm(x), self.tokens.weight)

    def example_inputs(self, batch: int = 2, length: int = 16) -> dict[str, Tensor]:
        """Keyword arguments for :meth:`forward`: random tokens and the padding mask of a ragged, right-padded batch."""
        return token_inputs(self.config.vocab_size, batch, length)


TINY = Config(vocab_size=256, width=64, layers=2, heads=4)


def tiny() -> Bloom:
    """Two layers of width 64, four heads, random weights: for tests."""
    return seeded(Bloom(TINY))


def six_heads() -> Bloom:
    """:func:`tiny` with six heads, which is no power of two, and width 96."""
    return seeded(Bloom(replace(TINY, width=96, heads=6)))


def small() -> Bloom:
    """Four layers of width 512, random weights: for timing."""
    return seeded(Bloom(Config(vocab_size=4096, width=512, layers=4, heads=8)))
