"""A sum of softmaxes times V becomes a sum of attentions; anything else stays as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from benchmarks.cases.runs import run_function

B, H, S, D = 2, 3, 21, 16
Program = Callable[..., Tensor]


def inputs(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """q, k, v and one factor for each head."""
    generator = torch.Generator().manual_seed(11)
    shapes = ((B, H, S, 2 * D), (B, H, S, 2 * D), (B, H, S, D), (H, 1, 1))
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def weights(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    (q1, q2), (k1, k2) = q.chunk(2, -1), k.chunk(2, -1)
    return (q1 @ k1.mT).softmax(-1), (q2 @ k2.mT).softmax(-1)


def minus(q: Tensor, k: Tensor, v: Tensor, factor: Tensor) -> Tensor:
    first, second = weights(q, k)
    return (first - factor * second) @ v


def three_terms(q: Tensor, k: Tensor, v: Tensor, factor: Tensor) -> Tensor:
    first, second = weights(q, k)
    third = (q @ k.mT * 0.1).softmax(-1)
    return torch.einsum("bhqk,bhkd->bqhd", first / 3 + factor * second - third, v)


def written_out(q: Tensor, k: Tensor, v: Tensor, factor: Tensor) -> Tensor:
    first, _ = weights(q, k)
    exp = (q @ k.mT).float().exp()
    return torch.add(first, exp / exp.sum(-1, keepdim=True), alpha=2).to(v.dtype) @ v


@pytest.mark.parametrize(("program", "sites"), [(minus, 2), (three_terms, 3), (written_out, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_each_softmax_is_an_attention(program: Program, sites: int, dtype: torch.dtype) -> None:
    outcome = run_function(program, inputs(dtype))
    assert outcome.right and outcome.fused == sites, str(outcome)


def multiplied(q: Tensor, k: Tensor, v: Tensor, factor: Tensor) -> Tensor:
    first, second = weights(q, k)
    return (first * second) @ v


def read_twice(q: Tensor, k: Tensor, v: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    first, second = weights(q, k)
    total = first - factor * second
    return total @ v, total


def with_the_same(q: Tensor, k: Tensor, v: Tensor, factor: Tensor) -> Tensor:
    first, _ = weights(q, k)
    return (first - factor * first.mT) @ v


@pytest.mark.parametrize("program", [read_twice, with_the_same])
def test_other_sums_stay_with_the_host(program: Program) -> None:
    outcome = run_function(program, inputs())
    assert outcome.right and outcome.fused == 0 and outcome.codes, str(outcome)


def test_a_product_of_two_softmaxes_is_one_attention_at_most() -> None:
    outcome = run_function(multiplied, inputs())
    assert outcome.right and outcome.fused == 1 and outcome.codes == ["ATTNC-WEIGHTS-OP"], str(outcome)
