"""vmap is written out as the batched operators it stands for; what can't be stays with the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnc.compiler.backend import backend
from attnc.compiler.report import reports


def rows(x: Tensor) -> Tensor:
    return torch.vmap(lambda row: row.sin() * 2 + row.sum())(x)


def nested(x: Tensor) -> Tensor:
    pair = torch.vmap(torch.vmap(lambda a, b: a - 3 * b, in_dims=(None, 0)), in_dims=(0, None))
    return pair(x[:, 0], x[0])


def other_dims(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.vmap(lambda column: (column.cumsum(0), column.max() > 0), in_dims=1, out_dims=(1, 0))(x)


def two_regions(x: Tensor) -> Tensor:
    return torch.vmap(torch.sort)(x).values @ torch.vmap(torch.flip, in_dims=(0, None))(x, (0,)).mT


def captured(x: Tensor) -> Tensor:
    offset = x.mean()
    return torch.vmap(lambda row: row - offset)(x) + offset


@pytest.mark.parametrize("function", [rows, nested, other_dims, two_regions, captured])
def test_written_out(function: Callable[[Tensor], Any], same: Any) -> None:
    outcome = same(lambda: (function, (torch.randn(4, 5),)))
    assert outcome.codes == []
    targets = [str(node.target) for c in outcome.captures for node in c.graph_module.graph.nodes]
    assert len(targets) > 2 and not any("vmap" in target or "batch_dim" in target for target in targets)


def test_sizes_stay_symbolic() -> None:
    seen: list[Any] = []
    compiled = torch.compile(rows, backend=_counting(seen), dynamic=True)
    for shape in ((4, 5), (7, 3), (2, 9)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), rows(x))
    assert len(seen) == 1 and reports()[-1].notes == []


def _counting(seen: list[Any]) -> Callable[..., Any]:
    inner = backend(host="aten")

    def counting(gm: torch.fx.GraphModule, args: Any) -> Any:
        seen.append(gm)
        return inner(gm, args)

    return counting


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_random_numbers(randomness: str, same: Any) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.vmap(lambda row: row + torch.rand(()), randomness=randomness)(x)

    assert set(same(lambda: (function, (torch.randn(4, 4),))).codes) == {"ATTNC-HOST-VMAP"}


def test_a_gradient_through_it(same_gradients: Any) -> None:
    assert set(same_gradients(rows, torch.randn(4, 4, requires_grad=True)).codes) == {"ATTNC-HOST-VMAP"}


def test_a_write_inside(same: Any) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.vmap(lambda row: row.clone().add_(1))(x)

    assert set(same(lambda: (function, (torch.randn(4, 4),))).codes) == {"ATTNC-HOST-VMAP"}


def test_a_derivative_inside(same: Any) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.vmap(torch.func.grad(lambda row: row.sin().sum()))(x)

    assert set(same(lambda: (function, (torch.randn(4, 4),))).codes) == {"ATTNC-HOST-VMAP"}


@pytest.mark.parametrize("length", [5, 8])
def test_a_mask_of_a_function_of_positions(length: int) -> None:
    """As Transformers builds a mask from a function of (batch, head, query, key)."""

    def sees(b: Tensor, q: Tensor, k: Tensor, keep: Tensor) -> Tensor:
        return (k <= q) & (q - k < 3) & keep[b, k]

    def function(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
        over_keys = torch.vmap(sees, in_dims=(None, None, 0, None))
        over_pairs = torch.vmap(over_keys, in_dims=(None, 0, None, None))
        places = torch.arange(q.shape[2])
        mask = torch.vmap(over_pairs, in_dims=(0, None, None, None))(torch.arange(q.shape[0]), places, places, keep)
        scores = (q @ k.mT / 4).masked_fill(~mask[:, None], -1e30)
        return scores.softmax(-1) @ v

    q, k, v = (torch.randn(2, 2, length, 16) for _ in range(3))
    keep = torch.rand(2, length) > 0.3
    with torch.no_grad():
        ours = torch.compile(function, backend=backend(host="aten"))(q, k, v, keep)
    report = reports()[-1]
    assert report.fused == 1 and report.notes == []
    assert report.sites[0].mask == "(k <= q) & (k - q > -3) & (keep[b, k] != 0)"
    torch.testing.assert_close(ours, function(q, k, v, keep), atol=2e-6, rtol=1e-5)
