"""Each family of transfer functions: the formula's text, and its numbers against execution."""

from __future__ import annotations

import pytest
import torch

X = torch.tensor([[1, 1, 0, 3, 1], [0, 1, 1, 1, 2], [1, 0, 0, 0, 7]])
"""int64 data of shape (3, 5)."""
MASK = X > 0
MIN = torch.finfo(torch.float32).min


def rows(x):
    return torch.arange(x.shape[0])[:, None]


def columns(x):
    return torch.arange(x.shape[1])[None, :]


CREATION = [
    (lambda x: torch.arange(x.shape[1]), "i"),
    (lambda x: torch.arange(3, x.shape[1] + 4), "i + 3"),
    (lambda x: torch.arange(10, 0, -3), "10 - 3*i"),
    (lambda x: torch.full(x.shape, 4), "4"),
    (lambda x: torch.full_like(x, x.shape[1]), None),
    (lambda x: x.new_ones((), dtype=torch.bool), "True"),
    (lambda x: torch.zeros_like(x, dtype=torch.float32), "0"),
    (lambda x: x.new_full((2,), 7.0, dtype=torch.float32), "7"),
    (lambda x: torch.full((2, 2), MIN), "-3.40282e+38 if True"),
    (lambda x: torch.eye(4), None),
    (lambda x: torch.eye(3, 5, dtype=torch.bool), "i == j"),
    (lambda x: torch.scalar_tensor(float("-inf")), "-inf if True"),
]

POINTWISE = [
    (lambda x: columns(x) - rows(x), "j - i"),
    (lambda x: torch.add(columns(x), 3) * 2, "2*j + 6"),
    (lambda x: 5 - columns(x), "5 - j"),
    (lambda x: -rows(x), "-i"),
    (lambda x: (columns(x) - rows(x)).abs() <= 1, "(i - j <= 1) & (j - i <= 1)"),
    (lambda x: (columns(x) - 2).sign(), None),
    (lambda x: columns(x) // 2, "j // 2"),
    (lambda x: torch.div(columns(x) - 3, 2, rounding_mode="trunc"), None),
    (lambda x: torch.div(columns(x) - 3, -2, rounding_mode="trunc"), None),
    (lambda x: torch.div(columns(x) - 3, 2, rounding_mode="floor"), None),
    (lambda x: (columns(x) - 3) // -2, None),
    (lambda x: (columns(x) - 3) % 2, None),
    (lambda x: (columns(x) - 3) % -2, None),
    (lambda x: torch.fmod(columns(x) - 3, 2), None),
    (lambda x: torch.fmod(columns(x) - 3, -2), None),
    (lambda x: columns(x).clamp(1, 3), None),
    (lambda x: torch.minimum(columns(x), rows(x)) < 1, "(i < 1) | (j < 1)"),
    (lambda x: torch.maximum(columns(x), rows(x)), "max(i, j)"),
    (lambda x: columns(x).clamp(max=2) >= rows(x), None),
    (lambda x: x + columns(x), "x_1[i, j] + j"),
    (lambda x: (columns(x).float() - 1.0).to(torch.int64), "j - 1"),
    (lambda x: columns(x).double() * 2, "2*j"),
    (lambda x: x.to(torch.bool), "x_1[i, j] != 0"),
    (lambda x: (columns(x) > 1).to(torch.int64) + 1, None),
    (lambda x: (columns(x) > 1) + (rows(x) > 1), "(i > 1) | (j > 1)"),
    (lambda x: (columns(x) > 1) * (rows(x) > 1), "(i > 1) & (j > 1)"),
]

LOGIC = [
    (lambda x: columns(x) <= rows(x), "j <= i"),
    (lambda x: rows(x) >= 0, "True"),
    (lambda x: columns(x) < x.shape[1], "True"),
    (lambda x: columns(x) > x.shape[1], "False"),
    (lambda x: (x == 0) & ~(columns(x) == 1), None),
    (lambda x: x.bool() | (columns(x) == 1), None),
    (lambda x: x.bool() ^ (columns(x) == 1), None),
    (lambda x: torch.logical_and(x, columns(x)), None),
    (lambda x: torch.logical_not(x), "x_1[i, j] == 0"),
    (lambda x: torch.logical_xor(x, columns(x)), None),
    (lambda x: (columns(x) > 1) == (rows(x) > 0), None),
    (lambda x: (columns(x) > 1) == 1, "j > 1"),
    (lambda x: columns(x).float() > 1.5, "j > 1"),
    (lambda x: columns(x) != 0.5, "True"),
    (lambda x: torch.where(columns(x) <= rows(x), 0.0, MIN), "0 if j <= i; -3.40282e+38 if True"),
    (lambda x: torch.where(x.bool(), columns(x), rows(x)), None),
    (lambda x: torch.zeros_like(x).masked_fill(x == 0, 3), None),
    (lambda x: torch.zeros(x.shape).masked_fill(x == 0, float("-inf")), None),
    (lambda x: torch.isinf(torch.zeros(x.shape).masked_fill(x == 0, float("-inf"))), "x_1[i, j] == 0"),
    (lambda x: torch.bitwise_not(x.bool()), "x_1[i, j] == 0"),
]

SHAPE = [
    (lambda x: x.t(), "x_1[j, i]"),
    (lambda x: x[None].permute(2, 0, 1), "x_1[m, i]"),
    (lambda x: x.reshape(-1), None),
    (lambda x: x.reshape(-1, 1, x.shape[0])[:, 0], None),
    (lambda x: x[:, None, :].expand(-1, 2, -1).reshape(-1, x.shape[1]), None),
    (lambda x: x.unsqueeze(1).squeeze(1), "x_1[i, j]"),
    (lambda x: x[1:, 2:], "x_1[i + 1, j + 2]"),
    (lambda x: x[:, -2:], None),
    (lambda x: x[:, -20:], None),
    (lambda x: x[:, ::2], "x_1[i, 2*j]"),
    (lambda x: x[:, -1], None),
    (lambda x: x.narrow(1, 1, 2), "x_1[i, j + 1]"),
    (lambda x: x.flip(1), None),
    (lambda x: x.repeat(2, 2, 3), None),
    (lambda x: x.repeat_interleave(2, dim=1), "x_1[i, j // 2]"),
    (lambda x: x.roll(2, 1), None),
    (lambda x: x.split(2, dim=1)[1], "x_1[i, j + 2]"),
    (lambda x: x.unbind(0)[1], "x_1[1, i]"),
    (lambda x: torch.ones(6, 6).triu(2), None),
    (lambda x: torch.full((6, 6), float("-inf")).triu(1), "-inf if j - i >= 1; 0 if True"),
    (lambda x: torch.ones(6, 6, dtype=torch.bool).tril(-1), "j - i <= -1"),
]

JOINING = [
    (lambda x: torch.cat([x, columns(x)]), None),
    (lambda x: torch.cat([x[:, :2], x], 1), None),
    (lambda x: torch.cat([torch.ones_like(x[:, :3]), x], 1) != 0, None),
    (lambda x: torch.cat([torch.arange(3), torch.arange(3, 9)]), "i"),
    (lambda x: torch.stack([x, 2 * x, columns(x).expand_as(x)], 1), None),
    (lambda x: torch.nn.functional.pad(x, (1, 2, 0, 1), value=9), None),
    (lambda x: torch.nn.functional.pad(x, (-1, 2)), None),
    (lambda x: torch.nn.functional.pad(x.bool(), (2, 0), value=True), None),
]

GATHER = [
    (lambda x: x[rows(x)[:, :, None], columns(x)[:, None, :]], None),
    (lambda x: x.bool()[rows(x)[:, None], columns(x)[0]], None),
    (lambda x: x[:, columns(x)[0] // 2], "x_1[i, j // 2]"),
    (lambda x: x[torch.arange(2), :, None][:, 0], None),
    (lambda x: x[-1 - torch.arange(2)], None),
    (lambda x: x[None, torch.arange(2), :, None][:, :, 1:], None),
    (lambda x: x[:, None].expand(-1, 2, -1)[torch.arange(3), :, torch.arange(3)[:, None]], None),
    (lambda x: x.index_select(1, torch.arange(2) + 1), "x_1[i, j + 1]"),
    (lambda x: x.gather(1, torch.zeros_like(x)), "x_1[i, 0]"),
    (lambda x: torch.arange(8)[x], None),
    (lambda x: x[:, x[:, 0]], None),
    (lambda x: torch.nn.functional.embedding(x[:, :2], torch.arange(20).view(10, 2)), None),
]

SCAN = [
    (lambda x: torch.ones_like(x).cumsum(1), "j + 1"),
    (lambda x: (columns(x) < 2).cumsum(1), None),
    (lambda x: (columns(x) >= rows(x)).cumsum(1), None),
    (lambda x: (columns(x) > 2 - rows(x)).cumsum(0), None),
    (lambda x: (x.new_zeros(x.shape, dtype=torch.bool)).cumsum(-1), "0"),
    (lambda x: torch.arange(8).diff(), "1"),
    (lambda x: x.diff(dim=1), "x_1[i, j + 1] - x_1[i, j]"),
    (lambda x: x.diff(dim=0, prepend=x[:1] - 1, append=x[:1]), None),
]

SCATTER = [
    (lambda x: torch.slice_scatter(x, columns(x).expand(2, x.shape[1]), 0, 1, 3), None),
    (lambda x: torch.slice_scatter(torch.zeros_like(x), x[:, :2], 1, -2), None),
    (lambda x: torch.select_scatter(x, columns(x)[0], 0, 1), None),
    (lambda x: torch.ops.aten.copy(torch.zeros_like(x), rows(x)) + 1, "i + 1"),
    (lambda x: torch.index_put(x, (torch.tensor(1), torch.tensor(2)), torch.tensor(99)), None),
]

FAMILIES = {
    "creation": CREATION,
    "pointwise": POINTWISE,
    "logic": LOGIC,
    "shape": SHAPE,
    "joining": JOINING,
    "gather": GATHER,
    "scan": SCAN,
    "scatter": SCATTER,
}
ALL = [(f"{name}{i}", *case) for name, cases in FAMILIES.items() for i, case in enumerate(cases)]


@pytest.mark.parametrize(("program", "text"), [c[1:] for c in ALL], ids=[c[0] for c in ALL])
@pytest.mark.parametrize("symbolic", [True, False], ids=["symbolic", "static"])
def test_formula_equals_execution(exact, program, text, symbolic):
    found = exact(program, X, symbolic=symbolic)
    if symbolic and text is not None:
        assert found == text
