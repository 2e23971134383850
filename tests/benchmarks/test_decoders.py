"""The decoders are decoders: causal, row by row, whatever else is in the batch; and they export."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from benchmarks.cases.decoders import DECODERS, LANGUAGE, OURS, PAIRS, Decoder, decoder, export, greedy
from benchmarks.cases.decoders.record import fixed
from benchmarks.cases.refusals.oracle import Inputs, responds, violations

RUN, EXPORTED = {"llama", "gpt2", "attnc-t5"}, {"attnc-gpt2"}
"""What is tried in the fast tests; an export takes seconds."""
TOLERANCE = 1e-5
"""Of float32 logits: products of other shapes are summed in another order."""


def each(fast: set[str]) -> list[object]:
    return [pytest.param(d, id=d.name, marks=[] if d.name in fast else [pytest.mark.slow]) for d in DECODERS]


@pytest.mark.parametrize("kind", each(RUN))
def test_it_is_a_causal_decoder(kind: Decoder) -> None:
    model = kind.make()

    def call(inputs: Inputs) -> Tensor:
        return kind.logits(model, **{"ids" if name == kind.tokens else name: x for name, x in inputs.items()})

    assert call(kind.inputs(2, 9)).shape == (2, 9, kind.vocabulary)
    assert violations(call, kind.inputs, kind.tokens, sizes=((3, 24),), tolerance=TOLERANCE) == {}
    assert responds(call, kind.inputs(1, 12, seed=5), kind.tokens) > 0.01
    assert [name for name, x in model.named_parameters() if x.numel() > 1 and x.std() == 0] == []


@pytest.mark.parametrize("kind", each(EXPORTED))
def test_it_exports_with_any_batch_and_length(kind: Decoder) -> None:
    model = kind.make()
    program = export(kind, model).module()
    for seed, (batch, length, source_length) in enumerate(((2, 13, 31), (5, 41, 6))):
        inputs = kind.inputs(batch, length, seed, source_length)
        with torch.no_grad():
            ours = program(**inputs, **fixed(model))
        ids = inputs.pop(kind.tokens)
        eager = kind.logits(model, ids, **inputs)
        torch.testing.assert_close(ours if isinstance(ours, Tensor) else ours[0], eager, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mpt", "gpt_neo"])
def test_the_limit_is_the_largest_length(name: str) -> None:
    longer = replace(decoder(name), limit=decoder(name).limit + 1)
    with pytest.raises(torch._dynamo.exc.UserError, match="S"):
        export(longer, longer.make())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mistral", "phi3", "starcoder2", "attnc-mistral"])
def test_two_windows_of_eight_reach_fourteen_tokens_back(name: str) -> None:
    kind = decoder(name)
    model, ids = kind.make(), kind.inputs(1, 24)["input_ids"]
    other = ids.clone()
    other[:, 0] += 1
    changed = (kind.logits(model, ids) - kind.logits(model, other)).abs().amax(-1)[0]
    assert changed[14] > 1e-6 and changed[15:].max() == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [d for d in DECODERS if d.source], ids=lambda d: d.name)
def test_what_the_encoder_reads_is_heard(kind: Decoder) -> None:
    model, first, other = kind.make(), kind.inputs(2, 7, seed=1), kind.inputs(2, 7, seed=2)
    ids = first.pop(kind.tokens)
    del other[kind.tokens]
    change = (kind.logits(model, ids, **first) - kind.logits(model, ids, **other)).abs().amax(-1)
    assert change.min() > 1e-3


def test_greedy_tokens_are_the_likeliest_of_one_run() -> None:
    kind = decoder("gpt2")
    model, prompt = kind.make(), kind.inputs(1, 6, seed=3)["input_ids"][0]
    said = greedy(kind, model, prompt, 5)
    logits = kind.logits(model, torch.cat((prompt, torch.tensor(said.tokens)))[None])[0, 5:-1]
    torch.testing.assert_close(said.logits, logits, rtol=1e-4, atol=1e-5)
    assert said.tokens == tuple(logits.argmax(-1).tolist())
    best = logits.sort(descending=True).values
    torch.testing.assert_close(said.margins, best[:, 0] - best[:, 1], rtol=1e-4, atol=1e-4)


def test_there_are_many() -> None:
    """Raise these figures with the lists; never lower them."""
    assert len(LANGUAGE) >= 31 and len(PAIRS) >= 4 and len(OURS) >= 11
    assert len({d.name for d in DECODERS}) == len(DECODERS)
