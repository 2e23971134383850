"""Whisper: an encoder of sound behind two convolutions, with sinusoids, and a decoder of text that attends to it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnc.models.layers import FeedForward, MultiHead, causal_mask, seeded, sinusoids, token_inputs
from attnc.models.vit import Block


@dataclass(frozen=True)
class Config:
    """Sizes of the model; the defaults are Whisper base."""

    vocab_size: int = 51865
    max_positions: int = 448
    """Of text; sound may have any length."""
    mels: int = 80
    """Features of a frame of sound."""
    width: int = 512
    layers: int = 6
    """In the encoder, and as many in the decoder."""
    heads: int = 8
    hidden: int = 2048
    eps: float = 1e-5


class Encoder(nn.Module):
    """Two convolutions, the second over every other frame, and pre-norm blocks."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.first = nn.Conv1d(config.mels, config.width, 3, padding=1)
        self.second = nn.Conv1d(config.width, config.width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(
            Block(config.width, config.heads, config.hidden, config.eps) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width, config.eps)

    def forward(self, input_features: Tensor) -> Tensor:
        """[B, ⌈F/2⌉, width] of F frames [B, mels, F]."""
        x = functional.gelu(self.second(functional.gelu(self.first(input_features)))).transpose(1, 2)
        x = x + sinusoids(x.shape[1], x.shape[2], x.dtype, x.device)
        for block in self.blocks:
            x = block(x)
        output: Tensor = self.norm(x)
        return output


class DecoderBlock(nn.Module):
    """Causal attention, attention to the sound, and MLP, each behind a LayerNorm and added to the stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width, config.eps)
        self.attention = MultiHead(config.width, config.heads)
        self.cross_norm = nn.LayerNorm(config.width, config.eps)
        self.cross = MultiHead(config.width, config.heads)
        self.mlp_norm = nn.LayerNorm(config.width, config.eps)
        self.mlp = FeedForward(config.width, config.hidden, functional.gelu)

    def forward(self, x: Tensor, causal: Tensor, sound: Tensor) -> Tensor:
        """x [B, S, width] to the same shape; ``causal`` bool [1, 1, S, S], sound [B, T, width]."""
        x = x + self.attention(self.attention_norm(x), causal)
        x = x + self.cross(self.cross_norm(x), source=sound)
        output: Tensor = x + self.mlp(self.mlp_norm(x))
        return output


class Whisper(nn.Module):
    """Encoder and decoder; the output matrix is the token embedding."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.positions = nn.Embedding(config.max_positions, config.width)
        self.decoder = nn.ModuleList(DecoderBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, config.eps)

    def forward(self, input_features: Tensor, decoder_input_ids: Tensor) -> Tensor:
        """Logits [B, S, vocab_size] for each of decoder_input_ids int64 [B, S], S at most ``config.max_positions``.

        They tell of input_features [B, mels, F], in the dtype of the weights.
        """
        sound = self.encoder(input_features)
        length = decoder_input_ids.shape[1]
        x = self.tokens(decoder_input_ids) + self.positions(torch.arange(length, device=decoder_input_ids.device))
        causal = causal_mask(length, x.device)
        for block in self.decoder:
            x = block(x, causal, sound)
        return functional.linear(self.norm(x), self.tokens.weight)

    def example_inputs(self, batch: int = 2, length: int = 16) -> dict[str, Tensor]:
        """Keyword arguments for :meth:`forward`: random tokens, and four frames of random sound for each."""
        frames = torch.randn(batch, self.config.mels, 4 * length, generator=torch.Generator().manual_seed(0))
        ids = token_inputs(self.config.vocab_size, batch, length)["input_ids"]
        return {"input_features": frames, "decoder_input_ids": ids}


def tiny() -> Whisper:
    """Two layers of width 64 on each side, 8 features a frame, random weights: for tests."""
    return seeded(Whisper(Config(256, max_positions=512, mels=8, width=64, layers=2, heads=4, hidden=128)))


def small() -> Whisper:
    """Two layers of width 512 on each side, random weights: for timing."""
    return seeded(Whisper(Config(vocab_size=4096, max_positions=4096, layers=2)))
