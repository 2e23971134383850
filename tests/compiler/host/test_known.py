"""Buffers that hold masks and tables are read when compiling, and a change of them is never missed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnc.compiler.backend import backend
from attnc.compiler.report import Report, reports

S, D = 24, 16


class Causal(nn.Module):
    """Attention with its mask in a buffer, as in many a minimal GPT."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[-2]
        scores = (x @ x.mT) * D**-0.5
        return scores.masked_fill(self.mask[:, :, :n, :n] == 0, float("-inf")).softmax(-1) @ x


class Rotary(nn.Module):
    """Waves read by position from a table."""

    def __init__(self, table: Tensor, parameter: bool = False) -> None:
        super().__init__()
        if parameter:
            self.table = nn.Parameter(table, requires_grad=False)
        else:
            self.register_buffer("table", table)

    def forward(self, x: Tensor) -> Tensor:
        sin, cos = self.table[: x.shape[-2]].chunk(2, dim=-1)
        low, high = x.chunk(2, dim=-1)
        return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


def lower() -> Tensor:
    return torch.ones(1, 1, S, S).tril()


def waves() -> Tensor:
    angles = torch.arange(S, dtype=torch.float64)[:, None] * 1.5 ** -torch.arange(D // 2, dtype=torch.float64)
    return torch.cat((angles.sin(), angles.cos()), dim=-1).float()


@pytest.fixture
def new() -> Iterator[list[Report]]:
    """Reports since the test began, refilled by :func:`run`."""
    with torch.no_grad():
        yield []


def run(compiled: Any, plain: nn.Module, length: int, new: list[Report]) -> Report:
    """Compare compiled with eager on fresh inputs; the report of the newest compile, all of them in ``new``."""
    before = len(reports())
    x = torch.randn(2, 3, length, D)
    torch.testing.assert_close(compiled(x), plain(x), atol=2e-6, rtol=1e-5)
    new += reports()[before:]
    return reports()[-1]


@pytest.mark.parametrize(
    "dtype", [torch.float32, *(pytest.param(d, marks=pytest.mark.slow) for d in (torch.bool, torch.int64))], ids=str
)
def test_a_mask_becomes_a_formula(dtype: torch.dtype, new: list[Report]) -> None:
    model = Causal(lower().to(dtype)).eval()
    compiled = torch.compile(model, backend=backend(host="aten"), dynamic=True)
    report = run(compiled, model, 9, new)
    assert report.sites[0].mask == "k <= q" and report.notes == []
    for length in (5, S - 1, 13):
        run(compiled, model, length, new)
    assert len(new) == 1


def test_one_other_element_keeps_it_dense(new: list[Report]) -> None:
    mask = lower()
    mask[0, 0, 4, 7] = 1
    model = Causal(mask)
    report = run(torch.compile(model, backend=backend(host="aten")), model, 9, new)
    assert report.fused == 1 and report.sites[0].mask != "k <= q"
    assert [note.code for note in report.notes] == ["ATTNC-DENSE-SIDE"]


def test_a_table_becomes_a_rotation(new: list[Report]) -> None:
    for parameter in (False, True):
        model = Rotary(waves(), parameter)
        assert len(run(torch.compile(model, backend=backend(host="aten")), model, 9, new).ropes) == 1


def test_a_trained_table_stays_an_input(new: list[Report]) -> None:
    model = Rotary(waves(), parameter=True).requires_grad_(True)
    assert run(torch.compile(model, backend=backend(host="aten")), model, 9, new).ropes == []


def test_a_write_compiles_again_and_is_not_read_twice(new: list[Report]) -> None:
    model = Causal(lower())
    compiled = torch.compile(model, backend=backend(host="aten"))
    run(compiled, model, 9, new)
    for shift in (1, -1, 2):
        model.mask.copy_(torch.ones(1, 1, S, S).tril(shift).maximum(torch.eye(S)))
        run(compiled, model, 9, new)
    assert len(new) == 2 and new[1].sites[0].mask != "k <= q"


def test_a_replaced_buffer_compiles_again(new: list[Report]) -> None:
    model = Causal(lower())
    compiled = torch.compile(model, backend=backend(host="aten"))
    run(compiled, model, 9, new)
    for fill in (0.5, 1.0, 2.0, 3.0, 4.0):
        model.mask = torch.full((1, 1, S, S), fill).triu()
        run(compiled, model, 9, new)
    assert len(new) == 3 and new[2].sites[0].mask != "k >= q"


def test_two_modules_of_a_class_are_both_read(new: list[Report]) -> None:
    chosen = backend(host="aten")
    for shift in (0, 1, 2, 3):
        model = Causal(torch.ones(1, 1, S, S).tril(shift))
        compiled = torch.compile(model, backend=chosen)
        for _ in range(2):
            run(compiled, model, 9, new)
    assert [bool(report.notes) for report in new] == [False, False, True]


def test_loading_a_state_is_a_write(new: list[Report]) -> None:
    model = Causal(lower())
    compiled = torch.compile(model, backend=backend(host="aten"))
    run(compiled, model, 9, new)
    model.load_state_dict({"mask": torch.ones(1, 1, S, S)})
    run(compiled, model, 9, new)
    assert len(new) == 2


def test_another_length_is_no_change(new: list[Report]) -> None:
    model = Causal(lower())
    compiled = torch.compile(model, backend=backend(host="aten"), dynamic=False)
    for length in (9, 10, 11):
        assert run(compiled, model, length, new).sites[0].mask == "k <= q"


def test_a_buffer_the_graph_writes_stays_an_input(new: list[Report]) -> None:
    class Counting(Causal):
        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x)
            self.mask.mul_(1.0)
            return out

    model, twin = Counting(lower()), Counting(lower())
    compiled = torch.compile(model, backend=backend(host="aten"))
    for _ in range(3):
        run(compiled, twin, 9, new)
    assert len(new) == 1


def test_a_buffer_that_is_returned_keeps_its_identity() -> None:
    class Returning(Causal):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x), self.mask, self.mask[:, :, :2]

    model = Returning(lower())
    with torch.no_grad():
        _, whole, part = torch.compile(model, backend=backend(host="aten"))(torch.randn(1, 1, 9, D))
    assert whole.data_ptr() == model.mask.data_ptr() == part.data_ptr()


def test_inference_tensors_have_no_version(new: list[Report]) -> None:
    with torch.inference_mode():
        model = Causal(lower())
        run(torch.compile(model, backend=backend(host="aten")), model, 9, new)


def test_with_inductor(new: list[Report]) -> None:
    model = Causal(lower())
    assert run(torch.compile(model, backend=backend()), model, 9, new).sites[0].mask == "k <= q"
