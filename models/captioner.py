"""An image-text model: a decoder of text with rotary positions whose layers also attend to the patches of an image.

As in Flamingo and Llama 3.2 Vision, the attention to the image stands between the blocks of a decoder and enters the
stream through a gate. The MLP is plain SiLU.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnc.models import llama, vit
from attnc.models.layers import FeedForward, MultiHead, RMSNorm, causal_mask, rope_table, seeded, token_inputs


@dataclass(frozen=True)
class Config:
    """Sizes of the two halves."""

    image: vit.Config = field(default_factory=vit.Config)
    text: llama.Config = field(default_factory=llama.Config)


class Block(nn.Module):
    """Causal attention, gated attention to the image, and MLP, each behind an RMSNorm and added to the stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        text = config.text
        self.attention_norm = RMSNorm(text.width, text.eps)
        self.attention = llama.Attention(text)
        self.cross_norm = RMSNorm(text.width, text.eps)
        self.cross = MultiHead(text.width, text.heads, config.image.width)
        self.gate = nn.Parameter(torch.ones(()))
        self.mlp_norm = RMSNorm(text.width, text.eps)
        self.mlp = FeedForward(text.width, text.hidden, functional.silu, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, causal: Tensor, patches: Tensor) -> Tensor:
        """x [B, S, width] to the same shape.

        cos and sin [S, D], ``causal`` bool [1, 1, S, S], patches [B, T, width].
        """
        x = x + self.attention(self.attention_norm(x), cos, sin, causal)
        x = x + self.gate.tanh() * self.cross(self.cross_norm(x), source=patches)
        output: Tensor = x + self.mlp(self.mlp_norm(x))
        return output


class Captioner(nn.Module):
    """A ViT and a decoder with its own output matrix."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        text = config.text
        self.image = vit.ViT(config.image)
        self.tokens = nn.Embedding(text.vocab_size, text.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(text.layers))
        self.norm = RMSNorm(text.width, text.eps)
        self.head = nn.Linear(text.width, text.vocab_size, bias=False)

    def forward(self, pixel_values: Tensor, input_ids: Tensor) -> Tensor:
        """Logits [B, S, vocab_size] of input_ids int64 [B, S].

        They tell of pixel_values [B, channels, image, image], in the dtype of the weights.
        """
        patches = self.image(pixel_values)
        length = input_ids.shape[1]
        causal = causal_mask(length, input_ids.device)
        x = self.tokens(input_ids)
        text = self.config.text
        positions = torch.arange(length, device=input_ids.device)
        cos, sin = rope_table(positions, text.head_dim, text.theta, x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin, causal, patches)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def example_inputs(self, batch: int = 2, length: int = 16) -> dict[str, Tensor]:
        """Keyword arguments for :meth:`forward`: random pixels and tokens."""
        ids = token_inputs(self.config.text.vocab_size, batch, length)["input_ids"]
        return {"pixel_values": vit.pixels(self.config.image, batch), "input_ids": ids}


def tiny() -> Captioner:
    """Two layers of width 64 on each side, 16 patches, random weights: for tests."""
    return seeded(Captioner(Config(vit.TINY, llama.TINY)))


def small() -> Captioner:
    """Four layers of width 512 on each side, 256 patches, random weights: for timing."""
    image = vit.Config(image=256, width=512, layers=4, heads=8, hidden=2048)
    return seeded(Captioner(Config(image, llama.SMALL)))
