"""Biases by the offset of two cells of a window are read from O(S) tables; indices that follow no window stay dense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnc.compiler.frontends.torch import import_graph
from attnc.compiler.interpreter import Interpreter
from attnc.compiler.passes.base import Context
from attnc.compiler.passes.contents import Contents
from attnc.compiler.passes.pipeline import run_pipeline
from attnc.compiler.passes.relation import Difference, entries, grid_of
from attnc.ir.graph import Graph
from attnc.ir.types import TensorType
from attnc.ir.values import Value

B, D = 2, 8
Window = tuple[int, int]
Program = Callable[[Window, Tensor], Tensor]
"""From a window and a table [entries, H] to a bias [H, S, S]."""


def cells(window: Window, down: bool = False) -> tuple[Tensor, Tensor]:
    """Row and column of every position; ``down``: numbered column by column."""
    height, width = window
    at = torch.arange(height * width)
    return (at % height, at // height) if down else (at // width, at % width)


def offsets(window: Window, down: bool = False) -> tuple[Tensor, Tensor]:
    """Differences of rows and of columns, from 0 [S, S]."""
    rows, columns = cells(window, down)
    return rows[:, None] - rows + window[0] - 1, columns[:, None] - columns + window[1] - 1


def index(window: Window, down: bool = False) -> Tensor:
    rows, columns = offsets(window, down)
    return rows * (2 * window[1] - 1) + columns


def flat(window: Window, table: Tensor) -> Tensor:
    """As Swin writes it."""
    numbers = index(window)
    return table[numbers.view(-1)].view(*numbers.shape, -1).permute(2, 0, 1).contiguous().unsqueeze(0)


def bounded(window: Window, table: Tensor) -> Tensor:
    """As Swinv2 does: a function of what is looked up."""
    return 16 * torch.sigmoid(flat(window, table * 2))


def heads_first(window: Window, table: Tensor) -> Tensor:
    """As LeViT does: one table for both directions, heads in front."""
    rows, columns = cells(window)
    return table.mT[:, (rows[:, None] - rows).abs() * window[1] + (columns[:, None] - columns).abs()]


def embedded(window: Window, table: Tensor) -> Tensor:
    return nn.functional.embedding(index(window), table).permute(2, 0, 1)


def two_indices(window: Window, table: Tensor) -> Tensor:
    """A table of rows and columns, read by a pair of index tensors."""
    rows, columns = offsets(window)
    return (
        table[: (2 * window[0] - 1) * (2 * window[1] - 1)]
        .view(-1, 2 * window[1] - 1, table.shape[1])[rows, columns]
        .permute(2, 0, 1)
    )


def token(window: Window, table: Tensor) -> Tensor:
    """As BEiT does: a class token in front, with three entries of its own."""
    return table[framed(window, (1, 0, 1, 0)).view(-1)].view(*(window[0] * window[1] + 1,) * 2, -1).permute(2, 0, 1)


def framed(window: Window, pad: tuple[int, int, int, int]) -> Tensor:
    numbers, count = index(window), (2 * window[0] - 1) * (2 * window[1] - 1)
    inner = nn.functional.pad(torch.ones_like(numbers), pad)
    outer = nn.functional.pad(numbers, pad)
    row = inner.sum(1, keepdim=True) > 0
    column = inner.sum(0, keepdim=True) > 0
    return torch.where(row & column, outer, count + row.to(torch.long) + 2 * column.to(torch.long))


def down_the_columns(window: Window, table: Tensor) -> Tensor:
    return table[index(window, down=True)].permute(2, 0, 1)


def shifted(window: Window, table: Tensor) -> Tensor:
    return table[index(window) + 1].permute(2, 0, 1)


def scaled(window: Window, table: Tensor) -> Tensor:
    return flat(window, table) * table[0][:, None, None].tanh()


def one_element(window: Window, table: Tensor) -> Tensor:
    at = torch.arange(window[0] * window[1])
    return table[index(window) + ((at[:, None] == 3) & (at == 5)).to(torch.long)].permute(2, 0, 1)


def one_query(window: Window, table: Tensor) -> Tensor:
    at = torch.arange(window[0] * window[1])
    return table[index(window) + (at == 2).to(torch.long)[:, None]].permute(2, 0, 1)


def two_windows(window: Window, table: Tensor) -> Tensor:
    """Queries are cells of a window, keys of its transpose."""
    (row, column), (other, further) = cells(window), cells((window[1], window[0]))
    return table[(row[:, None] - other).abs() + (column[:, None] - further).abs()].permute(2, 0, 1)


def two_orders(window: Window, table: Tensor) -> Tensor:
    """Queries are numbered along rows, keys along columns."""
    (row, column), (other, further) = cells(window), cells(window, down=True)
    return table[(row[:, None] - other).abs() * window[1] + (column[:, None] - further).abs()].permute(2, 0, 1)


def token_behind(window: Window, table: Tensor) -> Tensor:
    return table[framed(window, (0, 1, 0, 1))].permute(2, 0, 1)


class Windowed(nn.Module):
    def __init__(self, program: Program, window: Window) -> None:
        super().__init__()
        self.program, self.window = program, window

    def forward(self, q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        return (q @ k.mT + self.program(self.window, table)).softmax(-1) @ v


@dataclass
class Ran:
    graph: Graph
    context: Context

    @property
    def tables(self) -> int:
        return sum("a table of" in step for site in self.context.sites for step in site.certificate)

    @property
    def dense(self) -> int:
        return sum(note.code == "ATTNC-DENSE-SIDE" for note in self.context.notes)

    def most(self) -> int:
        """Elements of the largest side operand."""
        (op,) = (op for op in self.graph.ops if op.name == "attn.attention")
        assert isinstance(op.args[3], tuple)
        types = [side.type for side in op.args[3] if isinstance(side, Value)]
        return max(int(np.prod(kind.shape)) for kind in types if isinstance(kind, TensorType))


def judged(program: Program, window: Window, heads: int, queries: int | None = None) -> Ran:
    """Compile, compare with eager in float64 on two fresh tables."""
    positions = window[0] * window[1] + (program in (token, token_behind))

    def inputs() -> list[Tensor]:
        shape = (B, heads, positions, D)
        given = [torch.randn(B, heads, queries or positions, D), torch.randn(shape), torch.randn(shape)]
        return [*given, torch.randn((2 * window[0] - 1) * (2 * window[1] - 1) + 4, heads)]

    model = Windowed(program, window)
    module = torch.export.export(model, tuple(inputs())).run_decompositions({}).graph_module
    graph, context = import_graph(module), Context()
    run_pipeline(graph, context, check=True)
    for _ in range(2):
        given = [tensor.double() for tensor in inputs()]
        (ours,) = Interpreter(graph, wide=True).run(given)
        torch.testing.assert_close(ours, model(*given), rtol=1e-9, atol=1e-9)
    return Ran(graph, context)


WINDOWS = [(3, 5), (5, 3), (4, 4), (2, 7)]
TABLES = [flat, bounded, heads_first, embedded, two_indices, token, down_the_columns, shifted, scaled]
DENSE = [one_element, one_query, two_windows, two_orders, token_behind]


@pytest.mark.parametrize("program", [flat, token])
def test_swin_and_beit_are_tables(program: Program) -> None:
    assert judged(program, (3, 5), 3).tables == 1


@pytest.mark.slow
@pytest.mark.parametrize("program", TABLES)
@pytest.mark.parametrize(("window", "heads"), [((3, 5), 3), ((5, 3), 1)], ids=str)
def test_an_offset_in_a_window_is_a_table(program: Program, window: Window, heads: int) -> None:
    ran = judged(program, window, heads)
    assert ran.tables == 1 and not ran.dense
    assert ran.most() < heads * (window[0] * window[1]) ** 2


def test_one_other_element_keeps_an_index_dense() -> None:
    ran = judged(one_element, (3, 5), 3)
    assert ran.dense == 1 and not ran.tables


@pytest.mark.slow
@pytest.mark.parametrize("program", DENSE)
def test_other_indices_stay_dense(program: Program) -> None:
    ran = judged(program, (3, 5), 3)
    assert ran.dense == 1 and not ran.tables


@pytest.mark.slow
@pytest.mark.parametrize("program", [flat, token])
def test_a_window_of_one_cell(program: Program) -> None:
    judged(program, (1, 1), 3)


@pytest.mark.slow
def test_every_other_cell_as_query() -> None:
    """As LeViT shrinks: queries are every second cell of every second row."""

    def program(window: Window, table: Tensor) -> Tensor:
        rows, columns = cells(window)
        row = rows.view(window)[::2, ::2].reshape(-1, 1)
        column = columns.view(window)[::2, ::2].reshape(-1, 1)
        return table.mT[:, (row - rows).abs() * window[1] + (column - columns).abs()]

    assert judged(program, (5, 4), 3, queries=6).tables == 1


def test_an_index_that_is_an_input_stays_dense() -> None:
    """Its content may change between calls."""

    class Read(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, table: Tensor, numbers: Tensor) -> Tensor:
            return (q @ k.mT + table[numbers].permute(2, 0, 1)).softmax(-1) @ v

    window = (3, 5)
    q, k, v = (torch.randn(B, 3, 15, D) for _ in range(3))
    given = (q, k, v, torch.randn(50, 3), index(window))
    graph, context = import_graph(torch.export.export(Read(), given).run_decompositions({}).graph_module), Context()
    run_pipeline(graph, context, check=True)
    assert Ran(graph, context).dense == 1 and "is an input" in context.notes[0].message
    other = (*given[:4], index(window).flip(0))
    torch.testing.assert_close(Interpreter(graph).run(other)[0], Read()(*other))


def test_layers_share_the_parts_of_a_grid() -> None:
    class Two(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
            first = (q @ k.mT + flat((3, 5), table)).softmax(-1) @ v
            return (first @ k.mT + flat((3, 5), table * 2)).softmax(-1) @ v

    q, k, v = (torch.randn(B, 3, 15, D) for _ in range(3))
    module = torch.export.export(Two(), (q, k, v, torch.randn(45, 3))).run_decompositions({}).graph_module
    graph, context = import_graph(module), Context()
    run_pipeline(graph, context, check=True)
    assert Ran(graph, context).tables == 2
    assert sum(name.startswith("key_part") for name in graph.constants) == 1


@pytest.mark.parametrize("window", [*WINDOWS, (7, 7)])
def test_the_numbers_of_a_grid_decide_its_offsets(window: Window) -> None:
    matrix = index(window).numpy()
    grid = grid_of(matrix)
    assert grid is not None and grid.length == (2 * window[0] - 1) * (2 * window[1] - 1)
    numbers = grid.numbers()
    assert numbers.min() == 0 and numbers.max() == grid.length - 1
    for pair in np.ndindex(matrix.shape):
        broken = matrix.copy()
        broken[pair] += 1
        alone = (numbers == numbers[pair]).sum() == 1
        assert (entries(grid, broken) is None) == (not alone)


def test_a_matrix_of_differences_has_entries() -> None:
    matrix = np.arange(7) - np.arange(4)[:, None]
    found = entries(Difference(4, 7), np.clip(matrix, -2, 2))
    assert found is not None and found.tolist() == [-2, -2, -1, 0, 1, 2, 2, 2, 2, 2]
    assert entries(Difference(4, 7), matrix + np.eye(4, 7, dtype=int)[::-1]) is None
    assert entries(Difference(7, 4), matrix) is None


def test_random_and_float_values_have_no_content() -> None:
    class Made(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            at = torch.arange(6)
            return at * 2 + 1, at.float() * 2, torch.randint(3, (6,)), at + x, torch.randperm(6)

    graph = import_graph(torch.export.export(Made(), (torch.arange(6),)).run_decompositions({}).graph_module)
    contents = Contents(graph)
    found = [contents.of(value) for value in graph.output_values()]
    assert found[0] is not None and found[0].tolist() == [1, 3, 5, 7, 9, 11]
    assert [content is None for content in found] == [False, True, True, True, True]
