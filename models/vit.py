"""ViT: an encoder over the patches of an image, pre-norm blocks, GELU; a class token comes first."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnc.models.layers import FeedForward, MultiHead, seeded


@dataclass(frozen=True)
class Config:
    """Sizes of the model; the defaults are ViT base for images of 224 × 224 pixels."""

    image: int = 224
    patch: int = 16
    channels: int = 3
    width: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3072
    eps: float = 1e-12

    @property
    def patches(self) -> int:
        return (self.image // self.patch) ** 2


class Block(nn.Module):
    """Attention and MLP, each behind a LayerNorm and added to the stream."""

    def __init__(self, width: int, heads: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, eps)
        self.attention = MultiHead(width, heads)
        self.mlp_norm = nn.LayerNorm(width, eps)
        self.mlp = FeedForward(width, hidden, functional.gelu)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, S, width] to the same shape."""
        x = x + self.attention(self.attention_norm(x))
        output: Tensor = x + self.mlp(self.mlp_norm(x))
        return output


class ViT(nn.Module):
    """The encoder; no head."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Conv2d(config.channels, config.width, config.patch, stride=config.patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.positions = nn.Parameter(torch.zeros(1 + config.patches, config.width))
        self.blocks = nn.ModuleList(
            Block(config.width, config.heads, config.hidden, config.eps) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width, config.eps)

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Hidden states [B, 1 + patches, width], the class token's first.

        pixel_values [B, channels, image, image], in the dtype of the weights.
        """
        patches = self.embed(pixel_values).flatten(2).transpose(1, 2)
        x = torch.cat((self.class_token.expand(patches.shape[0], -1, -1), patches), dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        output: Tensor = self.norm(x)
        return output

    def example_inputs(self, batch: int = 2) -> dict[str, Tensor]:
        """Keyword arguments for :meth:`forward`: random pixels."""
        return {"pixel_values": pixels(self.config, batch)}


def pixels(config: Config, batch: int) -> Tensor:
    """Random images, float32 [B, channels, image, image]."""
    shape = (batch, config.channels, config.image, config.image)
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


TINY = Config(image=32, patch=8, width=64, layers=2, heads=4, hidden=128)


def tiny() -> ViT:
    """Two layers of width 64 over 16 patches, random weights: for tests."""
    return seeded(ViT(TINY))


def small() -> ViT:
    """Four layers of width 512 over 1024 patches, random weights: for timing."""
    return seeded(ViT(Config(image=512, width=512, layers=4, heads=8, hidden=2048)))
