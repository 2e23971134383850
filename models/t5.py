"""T5 (version 1.1): encoder and decoder with relative position biases, RMSNorm, GeGLU, and no scale on the scores.

Raffel et al. 2020, https://arxiv.org/abs/1910.10683. Biases and masks are made once, for all layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnc.models.layers import RMSNorm, causal_mask, merge_heads, padding_mask, pair_inputs, seeded, split_heads


@dataclass(frozen=True)
class Config:
    """Sizes of the model; the defaults are T5 1.1 base."""

    vocab_size: int = 32128
    width: int = 768
    layers: int = 12
    """In the encoder, and as many in the decoder."""
    heads: int = 12
    head_dim: int = 64
    hidden: int = 2048
    buckets: int = 32
    max_distance: int = 128
    eps: float = 1e-6


def additive(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where ``visible`` [...] is true, else the least number of ``dtype``."""
    return torch.where(visible, 0.0, torch.finfo(dtype).min).to(dtype)


class RelativeBias(nn.Module):
    """A number for each head and bucket of k − q: exact up to a distance, then logarithmic up to ``max_distance``."""

    def __init__(self, config: Config, causal: bool) -> None:
        """``causal``: keys after the query share bucket 0; else they have one half of the buckets."""
        super().__init__()
        self.table = nn.Embedding(config.buckets, config.heads)
        self.max_distance, self.causal = config.max_distance, causal

    def forward(self, length: int) -> Tensor:
        """[1, H, S, S] for a sequence and itself."""
        positions = torch.arange(length, device=self.table.weight.device)
        bias: Tensor = self.table(self.bucket(positions[None, :] - positions[:, None]))
        return bias.permute(2, 0, 1)[None]

    def bucket(self, relative: Tensor) -> Tensor:
        """Rows of the table, int64, of differences k − q, int64; any shape."""
        buckets = self.table.num_embeddings
        if self.causal:
            return self._by_distance(-torch.clamp(relative, max=0), buckets)
        return torch.where(relative > 0, buckets // 2, 0) + self._by_distance(relative.abs(), buckets // 2)

    def _by_distance(self, distance: Tensor, buckets: int) -> Tensor:
        exact = buckets // 2
        share = torch.log(distance.to(torch.float32) / exact) / math.log(self.max_distance / exact)
        far = exact + (share * (buckets - exact)).to(torch.int64)
        return torch.where(distance < exact, distance, torch.clamp(far, max=buckets - 1))


class Attention(nn.Module):
    """Attention of a sequence to itself or to another one; the scores are plain products plus bias and mask."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        inner = config.heads * config.head_dim
        self.heads = config.heads
        self.q = nn.Linear(config.width, inner, bias=False)
        self.k = nn.Linear(config.width, inner, bias=False)
        self.v = nn.Linear(config.width, inner, bias=False)
        self.out = nn.Linear(inner, config.width, bias=False)

    def forward(self, x: Tensor, source: Tensor, mask: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [B, S, width], source [B, T, width], mask and bias broadcastable to [B, H, S, T]; returns [B, S, width].

        The mask is 0, or the least number of its dtype.
        """
        q, k, v = (split_heads(y, self.heads) for y in (self.q(x), self.k(source), self.v(source)))
        scores = torch.matmul(q, k.transpose(-2, -1))
        if bias is not None:
            scores = scores + bias
        weights = torch.softmax(scores + mask, dim=-1, dtype=torch.float32).to(scores.dtype)
        output: Tensor = self.out(merge_heads(torch.matmul(weights, v)))
        return output


class GatedMLP(nn.Module):
    """GeGLU: two matrices in, one through GELU, and their product out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] to the same shape."""
        output: Tensor = self.down(functional.gelu(self.gate(x), approximate="tanh") * self.up(x))
        return output


class EncoderBlock(nn.Module):
    """Attention and MLP, each behind an RMSNorm and added to the stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.width, config.eps)
        self.attention = Attention(config)
        self.mlp_norm = RMSNorm(config.width, config.eps)
        self.mlp = GatedMLP(config)

    def forward(self, x: Tensor, mask: Tensor, bias: Tensor) -> Tensor:
        """x [B, S, width] to the same shape; mask and bias broadcastable to [B, H, S, S]."""
        normed = self.attention_norm(x)
        x = x + self.attention(normed, normed, mask, bias)
        output: Tensor = x + self.mlp(self.mlp_norm(x))
        return output


class DecoderBlock(EncoderBlock):
    """An encoder's block with attention to the encoder in its middle."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.cross_norm = RMSNorm(config.width, config.eps)
        self.cross = Attention(config)

    def forward(  # type: ignore[override]
        self, x: Tensor, mask: Tensor, bias: Tensor, memory: Tensor, memory_mask: Tensor
    ) -> Tensor:
        """x [B, S, width] to the same shape; memory [B, T, width], memory_mask broadcastable to [B, H, S, T]."""
        normed = self.attention_norm(x)
        x = x + self.attention(normed, normed, mask, bias)
        x = x + self.cross(self.cross_norm(x), memory, memory_mask)
        output: Tensor = x + self.mlp(self.mlp_norm(x))
        return output


class T5(nn.Module):
    """Encoder and decoder with one embedding of tokens and an output matrix of its own."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.encoder_bias = RelativeBias(config, causal=False)
        self.encoder = nn.ModuleList(EncoderBlock(config) for _ in range(config.layers))
        self.encoder_norm = RMSNorm(config.width, config.eps)
        self.decoder_bias = RelativeBias(config, causal=True)
        self.decoder = nn.ModuleList(DecoderBlock(config) for _ in range(config.layers))
        self.decoder_norm = RMSNorm(config.width, config.eps)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits [B, S, vocab_size] for each of decoder_input_ids int64 [B, S].

        They follow input_ids int64 [B, T]; attention_mask [B, T] is nonzero for its real tokens.
        """
        x = self.tokens(decoder_input_ids)
        padding = additive(padding_mask(attention_mask), x.dtype)
        memory = self.encode(input_ids, padding)
        length = decoder_input_ids.shape[1]
        causal, bias = additive(causal_mask(length, x.device), x.dtype), self.decoder_bias(length)
        for block in self.decoder:
            x = block(x, causal, bias, memory, padding)
        logits: Tensor = self.head(self.decoder_norm(x))
        return logits

    def encode(self, input_ids: Tensor, padding: Tensor) -> Tensor:
        """[B, T, width] of input_ids int64 [B, T]; padding [B, 1, 1, T] is added to the scores."""
        x: Tensor = self.tokens(input_ids)
        bias = self.encoder_bias(input_ids.shape[1])
        for block in self.encoder:
            x = block(x, padding, bias)
        x = self.encoder_norm(x)
        return x

    def example_inputs(self, batch: int = 2, length: int = 16) -> dict[str, Tensor]:
        """Keyword arguments for :meth:`forward`: random tokens, and the padding mask of the encoder's."""
        return pair_inputs(self.config.vocab_size, batch, length)


def _random(config: Config) -> T5:
    """Random weights; those of the queries hold the scale that other models put on the scores."""
    model = seeded(T5(config))
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, Attention):
                module.q.weight *= config.head_dim**-0.5
    return model


def tiny() -> T5:
    """Two layers of width 64 on each side, distances told apart up to 16, random weights: for tests."""
    return _random(Config(256, width=64, layers=2, heads=4, head_dim=16, hidden=128, buckets=12, max_distance=16))


def small() -> T5:
    """Two layers of width 512 on each side, random weights: for timing."""
    return _random(Config(vocab_size=4096, width=512, layers=2, heads=8, hidden=1024))
