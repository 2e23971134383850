"""Each filter against the processor of transformers that does the same to one row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from attnc.runtime.filters import keep_min_p, keep_top_k, keep_top_p, penalize, temper

transformers = pytest.importorskip("transformers")
INF = float("inf")


@pytest.fixture(autouse=True)
def configured() -> None:
    """These tests need no kernel store and no launcher."""


def rows(width: int = 37) -> Tensor:
    """Ordinary scores, many ties, all equal, one that stands alone, a tie at the top, tiny and huge ones."""
    random = torch.Generator().manual_seed(width)
    ordinary = torch.randn(3, width, generator=random) * 3
    tied = (torch.randn(2, width, generator=random) * 2).round()
    alone = torch.full((1, width), -INF)
    alone[0, width // 2] = -4.0
    top = torch.full((1, width), -2.0)
    top[0, [1, 5, 7]] = 3.0
    return torch.cat([ordinary, tied, torch.zeros(1, width), alone, top, ordinary[:1] * 1e-4, ordinary[:1] * 1e4])


def theirs(make: Callable[[Any], Any], settings: Sequence[Any], scores: Tensor) -> Tensor:
    """Row by row; a row without a setting as it is."""
    ids = torch.zeros(1, 1, dtype=torch.int64)
    pairs = zip(settings, scores.split(1), strict=True)
    return torch.cat([row if setting is None else make(setting)(ids, row) for setting, row in pairs])


def same(name: str, ours: Tensor, expected: Tensor, scores: Tensor) -> bool:
    """Equality; for top-p, which sorts, any choice among equal scores will do."""
    if name != "top_p":
        return torch.equal(ours, expected)
    untied = torch.tensor([len(row.unique()) == len(row) for row in scores])
    return torch.equal(ours[untied], expected[untied]) and torch.equal(ours.sort().values, expected.sort().values)


FILTERS = {
    "top_k": (keep_top_k, transformers.TopKLogitsWarper, [1, 2, 3, 5, 36, 37, 1000]),
    "top_p": (keep_top_p, transformers.TopPLogitsWarper, [0.001, 0.25, 0.5, 0.9, 0.999, 1.0]),
    "min_p": (keep_min_p, transformers.MinPLogitsWarper, [0.0, 0.01, 0.3, 0.9, 1.0]),
    "temperature": (temper, transformers.TemperatureLogitsWarper, [0.01, 0.3, 0.7, 1.0, 1.7, 50.0]),
}


@pytest.mark.parametrize("name", FILTERS)
def test_one_setting_for_all_rows(name: str) -> None:
    ours, make, settings = FILTERS[name]
    scores = rows()
    for setting in settings:
        expected = theirs(make, [setting] * len(scores), scores)
        assert same(name, ours(scores, [setting] * len(scores)), expected, scores), setting
        assert (expected > -INF).any(-1).all()


@pytest.mark.parametrize("name", FILTERS)
def test_a_setting_for_each_row(name: str) -> None:
    ours, make, settings = FILTERS[name]
    scores, kept = rows(), rows()
    for shift in range(len(settings) + 1):
        mixed = [[*settings, None][(row + shift) % (len(settings) + 1)] for row in range(len(scores))]
        assert same(name, ours(scores, mixed), theirs(make, mixed, scores), scores), mixed
    assert torch.equal(scores, kept), "written in place"
    assert ours(scores, [None] * len(scores)) is scores


@pytest.mark.parametrize("width", [1, 2, 8])
def test_equal_scores_are_cut_where_transformers_cuts(width: int) -> None:
    """Eight times 1/8 is exact, so each border is met exactly."""
    scores = torch.zeros(1, width)
    for eighths in range(1, 9):
        p = eighths / 8
        assert same("top_p", keep_top_p(scores, [p]), theirs(transformers.TopPLogitsWarper, [p], scores), scores), p
        kept = (keep_top_p(scores, [p]) == 0)[0].tolist()
        assert kept == sorted(kept), "those with the higher ids"
    for k in range(1, 10):
        assert torch.equal(keep_top_k(scores, [k]), scores), "a tie with the last one kept is kept"


def test_repetition_penalty() -> None:
    scores = rows()
    random = torch.Generator().manual_seed(1)
    seen = [torch.randint(37, (n % 5 * 9,), generator=random).tolist() for n in range(len(scores))]
    seen[3] = [0, 0, 36, 36, 36]
    penalties = [[1.3, 0.7, 5.0, None][n % 4] for n in range(len(scores))]
    expected = [
        row
        if penalty is None or not ids
        else transformers.RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([ids]), row)
        for row, ids, penalty in zip(scores.split(1), seen, penalties, strict=True)
    ]
    assert torch.equal(penalize(scores, seen, penalties), torch.cat(expected))


def test_a_penalty_counts_once_and_on_its_side_of_zero() -> None:
    scores = torch.tensor([[2.0, -2.0, 0.0, 2.0]])
    assert penalize(scores, [[0, 0, 0, 1, 1, 2]], [2.0]).tolist() == [[1.0, -4.0, 0.0, 2.0]]
    with pytest.raises(IndexError):
        penalize(scores, [[4]], [2.0])


def test_a_quotient_beyond_float32_is_the_largest_number() -> None:
    scores = torch.tensor([[3e38, -INF, 1.0]])
    assert temper(scores, [1e-4]).tolist() == [[torch.finfo(torch.float32).max, -INF, 1e4]]
