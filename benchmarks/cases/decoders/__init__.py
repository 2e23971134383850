"""Causal decoders to make generators of: unmodified, tiny, with random weights.

Each is a record that makes a model, calls it for logits of every token, exports it without a cache, and continues a
prompt by full recompute, which is what a derived program is compared with.
"""

from __future__ import annotations

from benchmarks.cases.decoders.language import LANGUAGE
from benchmarks.cases.decoders.ours import OURS
from benchmarks.cases.decoders.pairs import PAIRS
from benchmarks.cases.decoders.record import Decoder, Greedy, Source, export, greedy

__all__ = ["DECODERS", "LANGUAGE", "OURS", "PAIRS", "Decoder", "Greedy", "Source", "decoder", "export", "greedy"]

DECODERS: tuple[Decoder, ...] = (*LANGUAGE, *PAIRS, *OURS)


def decoder(name: str) -> Decoder:
    """The decoder of this name. Raises StopIteration where there is none."""
    return next(d for d in DECODERS if d.name == name)
