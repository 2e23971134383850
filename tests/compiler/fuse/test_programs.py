"""Programs that were once compiled into something else, or made the compiler fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from benchmarks.cases.runs import run_function

B, H, S, D = 2, 4, 12, 8
INF = math.inf


@dataclass(frozen=True)
class Case:
    """A program of q, k, v and one more tensor; ``code`` says why it is left, empty where it fuses."""

    name: str
    run: Callable[..., Tensor]
    more: Callable[[], Tensor] = lambda: torch.zeros(1)
    code: str = ""
    fold: bool = False
    """q, k and v have batch and heads in one dimension."""


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT * D**-0.5


def attend(s: Tensor, v: Tensor) -> Tensor:
    return s.softmax(-1) @ v


def causal() -> Tensor:
    return torch.ones(S, S, dtype=torch.bool).tril()


def keep() -> Tensor:
    """Causal with two dead rows."""
    mask = causal()
    mask[3:5] = False
    return mask


def hidden(value: float) -> Tensor:
    """A float mask over the first three keys [B, 1, 1, S]."""
    return torch.zeros(B, 1, 1, S).index_fill_(3, torch.arange(3), value)


def left_padding() -> Tensor:
    mask = torch.ones(B, S, dtype=torch.long)
    mask[1, :4] = 0
    return mask


def twice(q: Tensor, k: Tensor, v: Tensor, _: Tensor) -> Tensor:
    s = scores(q, k)
    return attend(s + s.mT, v)


def folded_alibi(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> Tensor:
    at = torch.arange(S)
    distance = (at[None] - at[:, None]).float()
    return attend(scores(q, k) + slopes.view(1, H).expand(B, H).reshape(B * H, 1, 1) * distance, v)


CASES = [
    Case(
        "lower bound on minus infinity",
        lambda q, k, v, m: attend(scores(q, k).masked_fill(~m, -INF).clamp(min=-1e9), v),
        keep,
    ),
    Case(
        "lower bound on a loaded minus infinity",
        lambda q, k, v, m: attend(torch.where(causal(), scores(q, k) + m, -INF).clamp(min=-1e9), v),
        lambda: hidden(-INF),
    ),
    Case("scores and their transpose", twice, code="ATTNC-CONTRACTION"),
    Case(
        "NaN to one half",
        lambda q, k, v, m: scores(q, k).masked_fill(~m, -INF).softmax(-1).nan_to_num(0.5) @ v,
        keep,
        code="ATTNC-WEIGHTS-OP",
    ),
    Case(
        "NaN to zero after a factor",
        lambda q, k, v, m: (scores(q, k).softmax(-1) * m).nan_to_num(0.0) @ v,
        lambda: torch.tensor([math.nan] + [1.0] * (S - 1)),
        code="ATTNC-WEIGHTS-OP",
    ),
    Case(
        "a gate from another contraction",
        lambda q, k, v, w: (scores(q, k).softmax(-1) * torch.sigmoid(q @ w)) @ v,
        lambda: torch.linspace(-1, 1, D)[:, None],
    ),
    Case(
        "a gate from the scores",
        lambda q, k, v, _: (lambda s: (s.softmax(-1) * torch.sigmoid(s)) @ v)(scores(q, k)),
        code="ATTNC-SCORE-CONDITION",
    ),
    Case(
        "a value broadcast over the keys",
        lambda q, k, v, _: torch.einsum("bhqk,bhkd->bhqd", scores(q, k).softmax(-1), v[:, :, :1]),
        code="ATTNC-LAYOUT",
    ),
    Case(
        "a batch that only the mask has",
        lambda q, k, v, m: attend(scores(q, k) + m, v),
        lambda: torch.linspace(-1, 1, 3 * S).view(3, 1, 1, 1, S),
        code="ATTNC-LAYOUT",
    ),
    Case("slopes of folded heads", folded_alibi, lambda: torch.linspace(0.1, 1, H), fold=True),
    Case(
        "transposed and back, then a view",
        lambda q, k, v, _: (attend(scores(q, k), v).transpose(1, 2) * 2).transpose(1, 2).view(B * H, S, D),
    ),
    Case(
        "a loaded mask under a causal one",
        lambda q, k, v, m: attend(torch.where(causal(), scores(q, k), -1e9) + m, v),
        lambda: hidden(-1e9),
    ),
    Case(
        "a loaded minus infinity under a finite causal mask",
        lambda q, k, v, m: attend(torch.where(causal(), scores(q, k), -1e9) + m, v),
        lambda: hidden(-INF),
    ),
    Case(
        "integer padding under a causal mask",
        lambda q, k, v, m: attend(torch.where(causal(), scores(q, k), -1e4) + ((1 - m) * -10000)[:, None, None], v),
        left_padding,
    ),
    Case("reversed subtraction", lambda q, k, v, _: attend(1 - scores(q, k), v)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_right_or_left_with_a_code(case: Case) -> None:
    generator = torch.Generator().manual_seed(1)
    shape = (B * H, S, D) if case.fold else (B, H, S, D)
    inputs = [torch.randn(shape, generator=generator) for _ in "qkv"]
    outcome = run_function(case.run, (*inputs, case.more()))
    assert outcome.right, str(outcome)
    assert outcome.codes == ([case.code] if case.code else [])
    assert outcome.fused == int(not case.code)
    assert not any(note.code == "ATTNC-HOST-INTERNAL" for report in outcome.reports for note in report.notes)


def test_the_result_of_one_attention_is_the_operand_of_the_next() -> None:
    def twice(x: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        for _ in range(2):
            x = torch.softmax(x @ x.mT * 0.25 + (x * bias).sum(-1)[:, :, None], -1) @ v
        return x

    generator = torch.Generator().manual_seed(2)
    x, v = (torch.randn(B, H, S, D, generator=generator) for _ in "xv")
    outcome = run_function(twice, (x, v, torch.linspace(-1, 1, D)))
    assert outcome.right and outcome.fused == 2, str(outcome)
    (report,) = outcome.reports
    assert len(report.kernels) == 1 and {site.kernel for site in report.sites} == set(report.kernels)
