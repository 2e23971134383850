"""The Transformer of 2017: encoder and decoder, sinusoidal positions, post-norm blocks, ReLU.

Vaswani et al. 2017, https://arxiv.org/abs/1706.03762. One matrix embeds the tokens of both sides and makes the logits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from attnc.models.layers import (
    FeedForward,
    MultiHead,
    causal_mask,
    padding_mask,
    pair_inputs,
    seeded,
    sinusoids,
)


@dataclass(frozen=True)
class Config:
    """Sizes of the model; the defaults are the paper's base model."""

    vocab_size: int = 37000
    width: int = 512
    layers: int = 6
    """In the encoder, and as many in the decoder."""
    heads: int = 8
    hidden: int = 2048
    eps: float = 1e-5


class EncoderBlock(nn.Module):
    """Attention and MLP, each added to the stream and then normalised."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = MultiHead(config.width, config.heads)
        self.attention_norm = nn.LayerNorm(config.width, config.eps)
        self.mlp = FeedForward(config.width, config.hidden, functional.relu)
        self.mlp_norm = nn.LayerNorm(config.width, config.eps)

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:
        """x [B, S, width] to the same shape; ``visible`` bool [B, 1, 1, S] or None."""
        x = self.attention_norm(x + self.attention(x, visible))
        output: Tensor = self.mlp_norm(x + self.mlp(x))
        return output


class DecoderBlock(nn.Module):
    """Causal attention, attention to the encoder, and MLP, each added to the stream and then normalised."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = MultiHead(config.width, config.heads)
        self.attention_norm = nn.LayerNorm(config.width, config.eps)
        self.cross = MultiHead(config.width, config.heads)
        self.cross_norm = nn.LayerNorm(config.width, config.eps)
        self.mlp = FeedForward(config.width, config.hidden, functional.relu)
        self.mlp_norm = nn.LayerNorm(config.width, config.eps)

    def forward(self, x: Tensor, causal: Tensor, memory: Tensor, visible: Tensor | None) -> Tensor:
        """x [B, S, width] to the same shape.

        ``causal`` bool [1, 1, S, S]; ``memory`` [B, T, width], of which ``visible`` [B, 1, 1, T] may be seen.
        """
        x = self.attention_norm(x + self.attention(x, causal))
        x = self.cross_norm(x + self.cross(x, visible, memory))
        output: Tensor = self.mlp_norm(x + self.mlp(x))
        return output


class Transformer(nn.Module):
    """Encoder and decoder."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.encoder = nn.ModuleList(EncoderBlock(config) for _ in range(config.layers))
        self.decoder = nn.ModuleList(DecoderBlock(config) for _ in range(config.layers))

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits [B, S, vocab_size] for each of decoder_input_ids int64 [B, S].

        They follow input_ids int64 [B, T]; attention_mask [B, T] is nonzero for its real tokens.
        """
        visible = None if attention_mask is None else padding_mask(attention_mask)
        memory = self.embed(input_ids)
        for block in self.encoder:
            memory = block(memory, visible)
        x = self.embed(decoder_input_ids)
        causal = causal_mask(x.shape[1], x.device)
        for block in self.decoder:
            x = block(x, causal, memory, visible)
        return functional.linear(x, self.tokens.weight)

    def embed(self, ids: Tensor) -> Tensor:
        """[B, S, width]: tokens times √width, plus positions."""
        x: Tensor = self.tokens(ids) * math.sqrt(self.config.width)
        return x + sinusoids(ids.shape[1], self.config.width, x.dtype, x.device)

    def example_inputs(self, batch: int = 2, length: int = 16) -> dict[str, Tensor]:
        """Keyword arguments for :meth:`forward`: random tokens, and the padding mask of the encoder's."""
        return pair_inputs(self.config.vocab_size, batch, length)


def tiny() -> Transformer:
    """Two layers of width 64 on each side, random weights: for tests."""
    return seeded(Transformer(Config(vocab_size=256, width=64, layers=2, heads=4, hidden=128)))


def small() -> Transformer:
    """Two layers of width 512 on each side, random weights: for timing."""
    return seeded(Transformer(Config(vocab_size=4096, layers=2)))
