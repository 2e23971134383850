"""Teacher forcing: the logits of a given text, whatever its chunks."""

from __future__ import annotations

import math
import random

import pytest
import torch
from serving_samples import MAX_LENGTH, VOCABULARY, HashProgram, logits_of

from attnc.runtime.scoring import chosen, forced_logits, perplexity


@pytest.mark.parametrize(("length", "chunk"), [(2, 64), (38, 1), (38, 7), (38, 64), (65, 64), (66, 64)])
def test_every_row_sees_the_tokens_before_it_and_no_other(length: int, chunk: int) -> None:
    tokens = [random.Random(length).randrange(VOCABULARY) for _ in range(length)]
    parts = list(forced_logits(HashProgram(), tokens, chunk))
    assert [len(part) for part in parts] == [min(chunk, length - 1 - i) for i in range(0, length - 1, chunk)]
    expected = torch.cat([logits_of(tokens[: i + 1]) for i in range(length - 1)])
    assert torch.equal(torch.cat(parts), expected)


def test_the_last_token_is_judged_and_never_fed() -> None:
    program = HashProgram()
    assert len(torch.cat(list(forced_logits(program, [3] * (MAX_LENGTH + 1))))) == MAX_LENGTH
    assert sum(tokens for _, tokens, _ in program.steps) == MAX_LENGTH


@pytest.mark.parametrize("length", [0, 1, MAX_LENGTH + 2])
def test_a_text_that_cannot_be_scored_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"a text of {length} tokens"):
        next(forced_logits(HashProgram(), [1] * length))


def test_perplexity_is_the_inverse_of_the_geometric_mean() -> None:
    chances = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    found = chosen(chances.log() + torch.tensor([[3.0], [-7.0]]), torch.tensor([1, 2]))  # logits are known up to this
    assert found.tolist() == pytest.approx([math.log(0.25), math.log(0.8)], abs=1e-6)
    assert perplexity(found) == pytest.approx((0.25 * 0.8) ** -0.5, rel=1e-6)
    assert perplexity(torch.full((7,), -math.log(48.0))) == pytest.approx(48.0, rel=1e-6)
    assert math.isnan(perplexity(torch.tensor([-1.0, math.nan])))
