"""The causal decoders among our own reference models (``attnc.models``): written naively, nothing prepared."""

from __future__ import annotations

from torch import nn

from benchmarks.cases.decoders.record import Decoder, Source

LIMIT = 256
VOCABULARY = 256


def _ours(name: str, tokens: str = "input_ids", source: Source | None = None) -> Decoder:
    def build(implementation: str) -> nn.Module:
        from attnc.models import build as model

        return model(name)

    return Decoder(f"attnc-{name}", build, LIMIT, tokens, source, VOCABULARY)


OURS: tuple[Decoder, ...] = (
    _ours("gpt2"),
    _ours("llama"),
    _ours("mistral"),
    _ours("bloom"),
    _ours("bloom-six"),
    _ours("falcon"),
    _ours("sparse"),
    _ours("transformer", "decoder_input_ids", Source()),
    _ours("t5", "decoder_input_ids", Source(mask=True)),
    _ours("whisper", "decoder_input_ids", Source("input_features", (8, 0), 2)),
    _ours("captioner", source=Source("pixel_values", (3, 32, 32), None)),
)
"""Decoders of tokens, and four that read an encoder."""
