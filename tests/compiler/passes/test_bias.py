"""Biases of relative position are read from O(S) tables; whatever is no function of k − q stays as it is."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from attnc.compiler.backend import backend
from attnc.compiler.frontends.torch import import_graph
from attnc.compiler.passes.base import Context
from attnc.compiler.passes.pipeline import run_pipeline
from attnc.compiler.report import Report, reports
from benchmarks.policy import Float64, judge, widened

H, D, BUCKETS = 3, 16, 32
Relation = Callable[[Tensor, Tensor], Tensor]


def buckets(relative: Tensor) -> Tensor:
    """T5's: exact up to a distance, then logarithmic; one half of the table for each direction."""
    half, exact = BUCKETS // 2, BUCKETS // 4
    distance = relative.abs()
    large = exact + ((distance.float() / exact).log() / math.log(64 / exact) * (half - exact)).to(torch.long)
    large = torch.min(large, torch.full_like(large, half - 1))
    return (relative > 0).to(torch.long) * half + torch.where(distance < exact, distance, large)


class Biased(nn.Module):
    """Attention plus a table looked up by buckets of some relation of positions."""

    def __init__(self, relation: Relation, causal: bool = False, past: int = 0) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(BUCKETS, H)
        self.relation, self.causal, self.past = relation, causal, past

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        row = torch.arange(q.shape[-2])[:, None] + self.past
        column = torch.arange(k.shape[-2])[None, :]
        bias = self.table(buckets(self.relation(row, column))).permute(2, 0, 1).unsqueeze(0)
        scores = q @ k.mT + bias
        if self.causal:
            scores = scores.masked_fill(column > row, -math.inf)
        return scores.softmax(-1) @ v


def inputs(batch: int, queries: int, keys: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    shapes = ((batch, H, queries, D), (batch, H, keys, D), (batch, H, keys, D))
    q, k, v = (torch.randn(shape).to(dtype) for shape in shapes)
    return q, k, v


def compiled(model: nn.Module, sizes: list[tuple[int, int, int]], dtype: torch.dtype = torch.float32) -> Report:
    """Compile for dynamic sizes, judge every size, return the one report."""
    torch._dynamo.reset()
    model = model.to(dtype)
    before = len(reports())
    run = torch.compile(model, backend=backend(host="aten"), dynamic=True)
    wide = type(model)(model.relation, model.causal, model.past).double()  # type: ignore[call-arg, arg-type]
    wide.load_state_dict(model.state_dict())
    with torch.no_grad():
        for size in sizes:
            given = inputs(*size, dtype)
            with Float64():
                reference = wide(*map(widened, given))
            verdict = judge(run(*given), model(*given), reference)
            assert verdict.passed, f"{size}: {verdict}"
    (report,) = reports()[before:]
    return report


SIZES = [(2, 33, 33), (3, 7, 7), (2, 64, 64)]
CROSS = [(2, 9, 41), (3, 30, 12), (2, 5, 64)]


def dense(report: Report) -> list[str]:
    return [note.code for note in report.notes if note.code == "ATTNC-DENSE-SIDE"]


@pytest.mark.parametrize(
    ("relation", "options", "sizes"),
    [
        (lambda q, k: k - q, {}, SIZES),
        (lambda q, k: k - q, {"causal": True}, CROSS),
        (lambda q, k: q - k, {"causal": True, "past": 5}, SIZES),
        (lambda q, k: (k - q + 2).clamp(-9, 9), {}, CROSS),
        (lambda q, k: k + 3 - q, {"past": 1}, CROSS),
    ],
    ids=["plain", "cross", "past", "clamped", "shifted"],
)
def test_a_function_of_the_distance_is_a_table(
    relation: Relation, options: dict[str, int], sizes: list[tuple[int, int, int]]
) -> None:
    report = compiled(Biased(relation, **options), sizes)  # type: ignore[arg-type]
    (site,) = report.sites
    assert site.fused and not dense(report)
    assert any("k - q alone" in step for step in site.certificate)


def test_a_table_in_bfloat16() -> None:
    report = compiled(Biased(lambda q, k: k - q), SIZES, torch.bfloat16)
    assert report.fused == 1 and not dense(report)


@pytest.mark.parametrize(
    "relation",
    [lambda q, k: k + q, lambda q, k: k - 2 * q, lambda q, k: k * q, lambda q, k: k - q + (q == 3)],
    ids=["sum", "stride", "product", "one row differs"],
)
def test_other_relations_stay_dense(relation: Relation) -> None:
    report = compiled(Biased(relation), SIZES)
    (site,) = report.sites
    assert site.fused and dense(report)


def test_layers_share_one_table() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Embedding(BUCKETS, H)

        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            at = torch.arange(q.shape[-2])
            bias = self.bias(buckets(at[None, :] - at[:, None])).permute(2, 0, 1)
            first = (q @ k.mT + bias).softmax(-1) @ v
            return (first @ k.mT + bias).softmax(-1) @ v

    module = torch.export.export(Two(), inputs(2, 17, 17)).run_decompositions({}).graph_module
    graph, context = import_graph(module), Context()
    run_pipeline(graph, context, check=True)
    assert [site.fused for site in context.sites] == [True, True] and not context.notes
    assert [op.name for op in graph.ops].count("aten.embedding.default") == 1
