"""Biases over the rows and columns of an image: products of Q of their own, whose view cuts the key axis."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from benchmarks.cases.runs import run_function

B, ROWS, COLUMNS, D = 2, 3, 5, 16
S = ROWS * COLUMNS

Program = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def inputs() -> tuple[Tensor, ...]:
    shapes = ((B, S, D), (B, S, D), (B, S, D), (ROWS, ROWS, D), (COLUMNS, COLUMNS, D))
    return tuple(torch.randn(shape) for shape in shapes)


def bias(q: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows[i, k] · q + columns[j, l] · q for the query at (i, j) and the key at (k, l)."""
    grid = q.reshape(B, ROWS, COLUMNS, D)
    over_rows = torch.einsum("bijd,ikd->bijk", grid, rows)
    over_columns = torch.einsum("bijd,jld->bijl", grid, columns)
    return (over_rows[:, :, :, :, None] + over_columns[:, :, :, None, :]).reshape(B, S, S)


def behind(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return ((q * D**-0.5) @ k.mT + bias(q, rows, columns)).softmax(-1) @ v


def before(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return (bias(q, rows, columns) + (q * D**-0.5) @ k.mT).softmax(-1) @ v


def taken_off(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return (0.5 * ((q * D**-0.5) @ k.mT - bias(q, rows, columns))).softmax(-1) @ v


def among_others(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    places = torch.arange(S)
    scores = bias(q, rows, columns) + ((q * D**-0.5) @ k.mT + (places[None] - places[:, None]) * 0.1)
    return scores.masked_fill(places[None] > places[:, None], float("-inf")).softmax(-1) @ v


@pytest.mark.parametrize(
    "program", [behind, *(pytest.param(p, marks=pytest.mark.slow) for p in (before, taken_off, among_others))]
)
def test_loaded_beside_the_scores(program: Program) -> None:
    torch.manual_seed(3)
    outcome = run_function(program, inputs())
    assert outcome.right and outcome.fused == 1, str(outcome)


def test_scores_that_are_cut_themselves_are_left() -> None:
    """There is no other operand that holds Q·Kᵀ."""

    def program(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        scores = (q @ k.mT).reshape(B, S, ROWS, COLUMNS)
        return (scores + rows[0, :, :1] * columns[0, :, 0]).reshape(B, S, S).softmax(-1) @ v

    torch.manual_seed(4)
    outcome = run_function(program, inputs())
    assert outcome.right and outcome.codes == ["ATTNC-LAYOUT"], str(outcome)
