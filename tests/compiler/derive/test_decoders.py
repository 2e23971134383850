"""Unmodified decoders as programs over pages: logits at every token and greedy tokens, ragged, in chunks."""

from __future__ import annotations

import pytest

from benchmarks.cases.decoders import DECODERS, Decoder
from benchmarks.derived import outcome

FAST = ("attnc-bloom",)
"""ALiBi, in heads that share nothing."""
CACHED = {"deepseek_v3": ((1, 24),), "falcon": ((1, 16), (1, 16)), "llama": ((2, 16), (2, 16))}
"""Heads and features that are kept of a token: the compressed vector, one head, the groups' heads."""


def check(decoder: Decoder) -> None:
    found = outcome(decoder)
    assert found.verdict.passed, found
    assert found.comparable >= 0.9 * found.steps, found
    assert found.different == 0, found
    if decoder.name in CACHED:
        assert found.streams == CACHED[decoder.name]


@pytest.mark.parametrize("name", FAST)
def test_a_decoder_is_derived(name: str) -> None:
    check(next(d for d in DECODERS if d.name == name))


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS, ids=[f"part{i % 4}-{d.name}" for i, d in enumerate(DECODERS)])
def test_every_decoder_is_derived(decoder: Decoder) -> None:
    check(decoder)
