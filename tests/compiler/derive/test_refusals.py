"""Models without an incremental program are refused, with the op and its line; their twins are derived, and right."""

from __future__ import annotations

import pytest
import torch

from attnc.compiler.derive.capture import Captured, capture
from attnc.compiler.derive.program import program_of
from attnc.compiler.derive.refusal import NotDerivable
from attnc.compiler.derive.streams import Pages
from attnc.runtime.kv.cache import KVCache
from benchmarks.cases.refusals import PAIRS, Pair
from benchmarks.cases.refusals.net import LIMIT, VOCABULARY

FAST = ("window by row of the batch",)


def refused(pair: Pair) -> None:
    with pytest.raises(NotDerivable) as caught:
        program_of(capture(pair.bad(), longest=LIMIT - 1), Pages(4))
    found = caught.value
    if pair.exports:
        assert found.op is not None and found.op.loc.file and found.op.loc.line, found
    else:
        assert found.code == "ATTNC-DERIVE-INPUT"


def derived(pair: Pair) -> None:
    """Prompts of several lengths, in chunks of 3 beside each other, against the whole."""
    model = pair.twin()
    captured: Captured = capture(model, longest=LIMIT - 1)  # one twin counts from 1
    program = program_of(captured, Pages(4))
    cache = KVCache(program.groups, {group.name: 40 for group in program.groups}, debug=True)
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(0, VOCABULARY, (n,), generator=generator) for n in (11, 1, 23)]
    with torch.no_grad():
        whole = [model(prompt[None])[0] for prompt in prompts]
    for i, prompt in enumerate(prompts):
        cache.admit(i, prompt.tolist())
    for begin in range(0, 23, 3):
        parts = {i: p[begin : begin + 3] for i, p in enumerate(prompts) if begin < len(p)}
        for i, part in parts.items():
            cache.reserve(i, len(part))
        batch = cache.batch([(i, len(part)) for i, part in parts.items()])
        ids = torch.cat(list(parts.values()))
        logits = program.step(ids, batch, cache.storage, torch.arange(len(ids)))
        for (i, part), rows in zip(parts.items(), logits.split([len(p) for p in parts.values()]), strict=True):
            torch.testing.assert_close(rows, whole[i][begin : begin + 3], rtol=1e-4, atol=1e-5)
            cache.commit(i, part.tolist())


@pytest.mark.parametrize("name", FAST)
def test_a_refusal_and_its_twin(name: str) -> None:
    pair = next(p for p in PAIRS if p.name == name)
    refused(pair)
    derived(pair)


def test_there_are_many_pairs() -> None:
    assert len(PAIRS) >= 40


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=[f"part{i % 4}-{p.name}" for i, p in enumerate(PAIRS)])
def test_every_refusal(pair: Pair) -> None:
    refused(pair)


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=[f"part{i % 4}-{p.name}" for i, p in enumerate(PAIRS)])
def test_every_twin(pair: Pair) -> None:
    derived(pair)
