"""A derived program against its model: logits at every token, and greedy tokens, of a ragged batch in chunks.

Every page is NaN until it is written. The policy is that of docs/architecture.md: the reference is the model in
float64, the bound twice its own error in float32 plus four units in the last place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnc.compiler.derive.capture import EncoderInput
from attnc.compiler.derive.entry import derive_program
from attnc.compiler.derive.program import DerivedProgram
from attnc.compiler.derive.streams import Pages
from attnc.runtime.kv.cache import KVCache
from attnc.runtime.kv.encoder import EncoderCache
from attnc.runtime.scoring import forced_step
from benchmarks.cases.decoders import Decoder
from benchmarks.cases.decoders.record import fixed
from benchmarks.coverage.compare import run_wide
from benchmarks.policy import Verdict, judge

LENGTHS = (5, 1, 17, 9, 30)
"""Tokens of the prompts."""
SOURCES = (19, 7, 30, 12, 4)
"""What the encoder of each reads."""
CHUNK, STEPS = 7, 32


@dataclass(frozen=True)
class Outcome:
    """What came of one decoder."""

    verdict: Verdict
    """Of the logits at every token."""
    steps: int
    comparable: int
    """Steps whose reference has a margin above the bound."""
    different: int
    """Comparable steps at which another token was chosen."""
    streams: tuple[tuple[int, int], ...]
    """Heads and features of what the first attention caches."""


def derived(decoder: Decoder, model: nn.Module, pages: Pages, longest: int) -> DerivedProgram:
    """The program of a decoder."""
    encoder = None
    if decoder.source is not None:
        inputs = decoder.inputs(3, 37, source_length=23)
        del inputs[decoder.tokens]
        encoder = {name: EncoderInput(x, decoder.source.grows) for name, x in inputs.items()}
    return derive_program(
        model, max_length=min(longest, decoder.limit), token_input=decoder.tokens, encoder=encoder, pages=pages
    )


def outcome(
    decoder: Decoder, pages: Pages | None = None, steps: int = STEPS, program: DerivedProgram | None = None
) -> Outcome:
    """Run a decoder's program on prompts of LENGTHS, prefill in chunks, then ``steps`` greedy tokens each.

    ``program``: one derived otherwise, of a model that keeps keys and values of its own.
    """
    model = decoder.make()
    program = program or derived(decoder, model, pages or Pages(16), decoder.limit)
    run = _Run(program, decoder)
    sequences, logits = run.generate(steps)
    return _judged(decoder, model, run, sequences, logits, steps)


class _Run:
    """One batch of requests on a program."""

    def __init__(self, program: DerivedProgram, decoder: Decoder) -> None:
        self.program = program
        pages = {group.name: 64 for group in program.groups}
        self.cache = KVCache(program.groups, pages, debug=True)
        self.encoder = EncoderCache(program.encoder_groups[0], 64, debug=True) if program.encoder_groups else None
        self.inputs = [
            decoder.inputs(1, length, seed=i, source_length=source)
            for i, (length, source) in enumerate(zip(LENGTHS, SOURCES, strict=True))
        ]
        self.prompts = [inputs.pop(decoder.tokens)[0].tolist() for inputs in self.inputs]

    def generate(self, steps: int) -> tuple[list[list[int]], list[Tensor]]:
        """The tokens of each request, and the logits behind each of them but the last."""
        tokens, rows = [list(p) for p in self.prompts], [[] for _ in self.prompts]  # type: ignore[var-annotated]
        done = [0] * len(tokens)
        for i, prompt in enumerate(self.prompts):
            self.cache.admit(i, prompt)
            if self.encoder is not None:
                self.encoder.admit(i, self.program.encode(self.inputs[i]))
        while left := [i for i, p in enumerate(self.prompts) if done[i] < len(p) + steps - 1]:
            counts = [min(CHUNK, len(tokens[i]) - done[i]) for i in left]
            for i, part in zip(left, self._step(left, counts, tokens, done), strict=True):
                rows[i].append(part)
                done[i] += len(part)
                if done[i] == len(tokens[i]):
                    tokens[i].append(int(part[-1].argmax()))
        return tokens, [torch.cat(parts) for parts in rows]

    def _step(
        self, left: Sequence[int], counts: Sequence[int], tokens: Sequence[list[int]], done: Sequence[int]
    ) -> Sequence[Tensor]:
        new = [tokens[i][done[i] : done[i] + n] for i, n in zip(left, counts, strict=True)]
        logits = forced_step(self.program, self.cache, list(zip(left, new, strict=True)), self.encoder)
        return logits.split([len(part) for part in new])


def _judged(
    decoder: Decoder, model: nn.Module, run: _Run, sequences: list[list[int]], logits: list[Tensor], steps: int
) -> Outcome:
    eager, exact = [], []
    for tokens, inputs in zip(sequences, run.inputs, strict=True):
        ids = torch.tensor([tokens[:-1]])
        eager.append(decoder.logits(model, ids, **inputs)[0])
        exact.append(run_wide(model, {decoder.tokens: ids, **inputs, **fixed(model)})[0][0])
    verdict = judge(torch.cat(logits), torch.cat(eager), torch.cat(exact))
    scale = max(row.abs().max().item() for row in exact)
    comparable = different = 0
    for tokens, rows in zip(sequences, exact, strict=True):
        chosen = torch.tensor(tokens[-steps:])
        top = rows[-steps:].topk(2)
        clear = top.values[:, 0] - top.values[:, 1] > verdict.bound * scale
        comparable += int(clear.sum())
        different += int((clear & (top.indices[:, 0] != chosen)).sum())
    streams = tuple((s.heads, s.features) for s in run.program.graphs.sites[0].streams)
    return Outcome(verdict, steps * len(sequences), comparable, different, streams)
