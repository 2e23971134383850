"""``verify="numeric"`` of a derived program: its logits at every token, however a prompt is cut, against its graph's.

The numerics policy of docs/architecture.md: the reference is the graph in float64, the bound twice the graph's own
error plus four units in the last place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from attnc.compiler.derive.capture import EXAMPLE, Captured
from attnc.compiler.derive.program import DerivedProgram
from attnc.compiler.interpreter import Interpreter
from attnc.compiler.verify import NumericError
from attnc.runtime.kv.cache import KVCache
from attnc.runtime.kv.encoder import EncoderCache
from attnc.runtime.scoring import forced_step

REQUESTS, LENGTH = EXAMPLE[0], 40
CHUNKS = (LENGTH, 7, 1)
"""Tokens of a step: a prefill, one in chunks, and decoding alone."""


def verify_numeric(program: DerivedProgram, captured: Captured) -> None:
    """Run random tokens through both. Raises NumericError where a row differs.

    Pages in fewer bits than the model computes in cost more than the policy allows: then only the ways to cut a prompt
    are compared with each other, by that bound.
    """
    size = REQUESTS, min(LENGTH, program.max_length)
    ids = torch.randint(0, program.vocabulary, size, generator=torch.Generator().manual_seed(0))
    given = {captured.tokens: ids, **captured.examples, **captured.state}
    inputs = [given.get(value.name) for value in captured.graph.inputs]  # None: flags that nothing reads
    exact, own = (_logits(captured, inputs, wide=wide) for wide in (True, False))
    scale = exact.abs().max()
    bound = float(2 * (own - exact).abs().max() / scale + 4 * torch.finfo(own.dtype).eps)
    whole = _run(program, ids, CHUNKS[0], captured.examples)
    reference = exact if _stored_as_computed(program) else whole.double()
    for chunk in CHUNKS:
        found = whole if chunk == CHUNKS[0] else _run(program, ids, chunk, captured.examples)
        error = float((found - reference).abs().max() / scale)
        if not error <= bound:
            raise NumericError(
                f"verifying the derived program: logits of {chunk} tokens a step differ by {error:.3g} of the largest, "
                f"more than {bound:.3g}. The derivation is wrong for this model: please report the IR dump."
            )


def _logits(captured: Captured, inputs: list[Any], *, wide: bool) -> Tensor:
    with torch.no_grad():
        found: Tensor = Interpreter(captured.graph, wide=wide).run(inputs)[0]
    return found


def _stored_as_computed(program: DerivedProgram) -> bool:
    streams = [s for g in (*program.groups, *program.encoder_groups) for site in g.sites.values() for s in site]
    return all(stream.store == stream.dtype for stream in streams)


def _run(program: DerivedProgram, ids: Tensor, chunk: int, encoder: Mapping[str, Tensor]) -> Tensor:
    """Logits [REQUESTS, tokens, vocabulary] from pages that are NaN until they are written."""
    requests, length = ids.shape
    pages = {group.name: 1 + requests * group.pages(length) for group in program.groups}
    cache = KVCache(program.groups, pages, debug=True)
    for i, row in enumerate(ids.tolist()):
        cache.admit(i, row, salt=bytes([i]))
    reader = _encoded(program, requests, encoder) if program.encoder_groups else None
    rows = []
    for begin in range(0, length, chunk):
        new = ids[:, begin : begin + chunk].tolist()
        rows.append(forced_step(program, cache, list(enumerate(new)), reader).view(requests, len(new[0]), -1))
    return torch.cat(rows, 1)


def _encoded(program: DerivedProgram, requests: int, encoder: Mapping[str, Tensor]) -> EncoderCache:
    """What the encoder gives for each request, in pages."""
    (group,) = program.encoder_groups
    rows = [program.encode({name: x[i : i + 1] for name, x in encoder.items()}) for i in range(requests)]
    longest = max(len(k) for made in rows for k, _ in made.values())
    reader = EncoderCache(group, 1 + requests * group.pages(longest), debug=True)
    for i, made in enumerate(rows):
        reader.admit(i, made)
    return reader
