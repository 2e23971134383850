"""The pairs are what they say: running shows what is wrong with each bad model, and nothing wrong with its twin."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor

from benchmarks.cases.refusals import PAIRS, PROPERTIES, Pair, judged, refusal
from benchmarks.cases.refusals.net import VOCABULARY
from benchmarks.cases.refusals.oracle import SIZES, Inputs, responds, violations
from benchmarks.cases.refusals.pairs import draw

SEEN = 1e-4
"""A violation changes a logit by this share of the largest at the least; float64 rounds at 1e-16."""
EACH = [pytest.param(pair, id=pair.name.replace(" ", "-")) for pair in PAIRS]
WORDS = {"mask", "length", "batch"}
"""Reasons that name no op."""


@pytest.mark.parametrize("pair", EACH)
def test_bad_is_no_decoder(pair: Pair) -> None:
    bad = pair.bad()
    assert any(judged(bad, [size]).get(pair.violates, 0.0) > SEEN for size in SIZES), judged(bad)


@pytest.mark.parametrize("pair", EACH)
def test_twin_is_a_decoder(pair: Pair) -> None:
    twin = pair.twin().double()
    assert judged(twin) == {}
    with torch.no_grad():
        assert responds(lambda inputs: twin(**inputs), draw(2, 4, seed=9)) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("pair", EACH)
def test_both_export_and_the_reason_is_in_the_graph(pair: Pair) -> None:
    exported(pair, pair.twin())
    if not pair.exports:
        with pytest.raises(torch._dynamo.exc.UserError):
            exported(pair, pair.bad())
        return
    program = exported(pair, pair.bad()).run_decompositions({})
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert pair.reason in WORDS or any(pair.reason in name for name in names), sorted(names)


def exported(pair: Pair, model: torch.nn.Module) -> torch.export.ExportedProgram:
    return torch.export.export(model, (), draw(3, 20, seed=0), dynamic_shapes=pair.dynamic(), strict=False)


def test_there_are_many() -> None:
    """Raise these figures with the lists; never lower them."""
    assert len(PAIRS) == len({pair.name for pair in PAIRS}) >= 124
    assert all(least <= Counter(pair.violates for pair in PAIRS)[name] for name, least in LEAST.items())
    assert refusal("bidirectional").violates == "later"


LEAST = {"repeat": 2, "later": 56, "batch": 17, "alone": 8, "length": 18, "state": 23}


def test_every_property_is_tried() -> None:
    assert set(LEAST) == set(PROPERTIES) == {pair.violates for pair in PAIRS}


def own(inputs: Inputs) -> Tensor:
    """Each token and its position [B, S, 2]."""
    ids = inputs["input_ids"]
    return torch.stack((ids + 1.0, torch.arange(ids.shape[1]).expand(ids.shape)), -1)


def test_a_function_of_each_token_violates_nothing() -> None:
    assert violations(own, draw, severed=own) == {}
    assert responds(own, draw(2, 4, seed=0)) > 0


@pytest.mark.parametrize(
    ("spread", "names"),
    [
        (lambda x: x.roll(-1, 1), {"later", "length"}),
        (lambda x: x.flip(0), {"batch", "alone"}),
        (lambda x: x.cumsum(1), set()),
        (lambda x: x.cumsum(0), {"batch", "alone"}),
        (lambda x: x + x.shape[0], {"alone"}),
        (lambda x: x + x.shape[1], {"length"}),
        (lambda x: x * torch.rand(()), {"repeat"}),
        (lambda x: x / 0.0, set(PROPERTIES) - {"state"}),
    ],
)
def test_the_oracle_tells_violations_apart(spread: object, names: set[str]) -> None:
    assert callable(spread)
    found = violations(lambda inputs: spread(own(inputs)), draw)
    assert set(found) == names or found == {"repeat": float("inf")}


def test_a_memory_shows_once_attention_is_cut() -> None:
    found = violations(lambda x: own(x).cumsum(1), draw, severed=lambda x: own(x).cumsum(1))
    assert set(found) == {"state"} and found["state"] > SEEN


def test_a_token_that_is_not_read_is_seen() -> None:
    assert responds(lambda inputs: own(inputs)[..., 1:], draw(2, 4, seed=0)) == 0


def test_tokens_are_in_the_vocabulary() -> None:
    ids = draw(50, 8, seed=3)["input_ids"]
    assert ids.min() == 0 and ids.max() == VOCABULARY - 1
