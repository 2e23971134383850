"""How probable a given text is to a step program: teacher forcing, every token fed as it stands and none drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from attnc.runtime.kv.cache import KVCache
from attnc.runtime.kv.encoder import EncoderCache
from attnc.runtime.kv.sequences import SequenceId
from attnc.runtime.step_program import StepProgram

CHUNK = 64
"""Tokens of a step. Logits of a large vocabulary take 64 MB then."""


def forced_logits(program: StepProgram, tokens: Sequence[int], chunk: int = CHUNK) -> Iterator[Tensor]:
    """Logits [rows, vocabulary] behind each of ``tokens`` but the last, in order, ``chunk`` rows at a time.

    Row i of all of them judges token i + 1. Keys and values go to pages of a cache of its own, so the rows hold what
    reading them back costs. Raises ValueError at the first step for fewer than 2 tokens or more than the program takes.
    """
    fed = list(tokens[:-1])
    if not 1 <= len(fed) <= program.max_length:
        raise ValueError(f"a text of {len(tokens)} tokens is scored; the program takes 2 to {program.max_length + 1}")
    cache = KVCache(program.groups, {group.name: group.pages(len(fed)) + 1 for group in program.groups})
    cache.admit(0, fed)
    for begin in range(0, len(fed), chunk):
        yield forced_step(program, cache, [(0, fed[begin : begin + chunk])])


def forced_step(
    program: StepProgram,
    cache: KVCache,
    parts: Sequence[tuple[SequenceId, Sequence[int]]],
    encoder: EncoderCache | None = None,
) -> Tensor:
    """Logits [rows, vocabulary] behind the next tokens of some sequences, which are committed then."""
    for seq, tokens in parts:
        cache.reserve(seq, len(tokens))
    batch, storage = cache.batch([(seq, len(tokens)) for seq, tokens in parts]), cache.storage
    if encoder is not None:
        batch = encoder.joined(batch, [seq for seq, _ in parts])
        storage = {**storage, encoder.group.name: encoder.storage}
    ids = torch.tensor([token for _, tokens in parts for token in tokens])
    with torch.no_grad():
        logits = program.step(ids, batch, storage, torch.arange(len(ids)))
    for seq, tokens in parts:
        cache.commit(seq, tokens)
    return logits


def chosen(logits: Tensor, targets: Tensor) -> Tensor:
    """f32 [rows]: log-probabilities of ``targets`` i64 [rows] under ``logits`` [rows, vocabulary]."""
    return logits.float().log_softmax(-1).gather(1, targets[:, None])[:, 0]


def perplexity(likelihoods: Tensor) -> float:
    """exp of the mean negative log-likelihood [tokens]."""
    return float(torch.exp(-likelihoods.double().mean()))
