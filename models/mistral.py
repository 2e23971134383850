"""Mistral: Llama whose queries see a sliding window of keys."""

from __future__ import annotations

from dataclasses import replace

from attnc.models.layers import seeded
from attnc.models.llama import SMALL, TINY, Config, Llama

MISTRAL_7B = Config(
    vocab_size=32000,
    width=4096,
    layers=32,
    heads=32,
    kv_heads=8,
    head_dim=128,
    hidden=14336,
    theta=10000.0,
    window=4096,
)


class Mistral(Llama):
    """A Llama with a window. Raises ValueError for a configuration without one."""

    def __init__(self, config: Config = MISTRAL_7B) -> None:
        if config.window is None:
            raise ValueError("Mistral: config.window is None; give it a number of keys, or use Llama")
        super().__init__(config)


def tiny() -> Mistral:
    """Two layers of width 64, a window of 8 keys, random weights: for tests."""
    return seeded(Mistral(replace(TINY, window=8)))


def small() -> Mistral:
    """Four layers of width 512, a window of 256 keys, random weights: for timing."""
    return seeded(Mistral(replace(SMALL, window=256)))
