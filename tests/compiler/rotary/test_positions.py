"""What the positions of a rotation may be: any tensor that broadcasts, several of them, rows of constant tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.rotary.rewrite import Rewrite
from attnc.compiler.rotary.turns import Frequency
from attnc.ir.graph import Graph
from attnc.ir.types import DType, TensorType

D = 8
INV = 100.0 ** (-torch.arange(0, D, 2).float() / D)


def twice(x: Tensor) -> Tensor:
    return torch.cat((x, x), dim=-1)


def apply(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def by(x: Tensor, angles: Tensor) -> Tensor:
    return apply(x, angles.cos(), angles.sin())


def names(outcome: Any) -> list[str]:
    """The producers of the position operands."""
    (rope,) = outcome.ropes
    return [p.op.name if p.op is not None else "input" for p in rope.args[1]]


def test_a_row_of_positions_for_each_sequence(turned: Any) -> None:
    """[B, S] positions against [B, H, S, D]: a dimension is put between."""
    outcome = turned(lambda x, p: by(x, twice(p[:, None, :, None].float() * INV)), torch.randn(2, 3, 5, D), ids(2, 5))
    assert names(outcome) == ["aten.unsqueeze.default"]
    assert outcome.ropes[0].args[1][0].type.rank == 3
    outcome.check()


def test_positions_before_the_heads(turned: Any) -> None:
    """[B, S, H, D]: the same positions need two dimensions fewer than their own."""
    x, p = torch.randn(2, 5, 3, D), ids(2, 5)
    outcome = turned(lambda x, p: by(x, twice(p[..., None].float() * INV)[:, :, None]), x, p)
    assert names(outcome) == ["aten.unsqueeze.default"]
    outcome.check()


def test_positions_run_along_dimensions_in_another_order(turned: Any) -> None:
    outcome = turned(lambda x, p: by(x, twice(p.T[:, None, :, None] * INV)), torch.randn(2, 3, 5, D), ids(5, 2).float())
    assert len(outcome.ropes) == 1
    outcome.check()


def test_fractions_are_positions(turned: Any) -> None:
    outcome = turned(lambda x, p: by(x, twice(p[:, None] * INV)), torch.randn(2, 5, D), torch.rand(5) * 9 - 4)
    assert names(outcome) == ["input"]
    outcome.check()


def test_positions_made_in_the_graph(turned: Any) -> None:
    def run(x: Tensor, mask: Tensor) -> Tensor:
        positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
        return by(x, twice(positions[:, None, :, None].float() * INV))

    outcome = turned(run, torch.randn(2, 3, 5, D), torch.tensor([[1] * 5, [0, 0, 1, 1, 1]]))
    assert len(outcome.ropes) == 1
    outcome.check()


def test_queries_and_keys_at_different_positions_stay_apart(turned: Any) -> None:
    def run(q: Tensor, k: Tensor, p: Tensor, r: Tensor, f: Tensor) -> Tensor:
        return by(q, twice(p[:, None].float() * f)) @ by(k, twice(r[:, None].float() * f)).mT

    outcome = turned(run, torch.randn(2, 5, D), torch.randn(2, 7, D), torch.arange(5) + 2, torch.arange(7), INV)
    first, second = outcome.ropes
    assert first.args[1] != second.args[1] and first.args[2] == second.args[2]
    outcome.check()


def test_equal_angles_are_computed_once(turned: Any) -> None:
    def run(q: Tensor, k: Tensor, p: Tensor) -> Tensor:
        a = twice(p[:, None].float() * INV)
        return by(q, a) @ by(k, a).mT + by(k, a).sum()

    outcome = turned(run, torch.randn(2, 5, D), torch.randn(2, 5, D), torch.arange(5))
    assert len(outcome.ropes) == 3
    called = [str(node.target) for node in outcome.module.graph.nodes]
    assert called.count("aten.cos.default") == called.count("aten.sin.default") == 1
    outcome.check()


def test_a_cosine_read_elsewhere_stays(turned: Any) -> None:
    def run(x: Tensor, p: Tensor) -> Tensor:
        a = twice(p[:, None].float() * INV)
        return by(x, a) + a.cos().sum()

    outcome = turned(run, torch.randn(2, 5, D), torch.arange(5))
    assert [op.name for op in outcome.graph.ops].count("aten.cos.default") == 1 and len(outcome.ropes) == 1
    outcome.check()


# -- several positions ---------------------------------------------------------------------------------------------


def axial(x: Tensor, p: Tensor, f: Tensor) -> Tensor:
    """The row turns the first pairs, the column the others: [N, 2] positions."""
    return by(x, twice((p[..., None].float() * f[::2]).flatten(1)))


def from_a_table(x: Tensor, p: Tensor, f: Tensor) -> Tensor:
    """As Qwen's vision towers write it."""
    table = torch.outer(torch.arange(64).float(), f[::2])
    return by(x, twice(table[p].flatten(1)))


def sections(x: Tensor, p: Tensor, f: Tensor) -> Tensor:
    """Time, height and width positions [3, B, S], one chunk of the features each."""
    angles = twice((f[None, None, :, None].expand(3, p.shape[1], -1, 1) @ p[:, :, None].float()).transpose(2, 3))
    pick = lambda w: torch.cat([m[i % 3] for i, m in enumerate(w.split([2, 1, 1] * 2, dim=-1))], dim=-1)  # noqa: E731
    return apply(x, pick(angles.cos()).unsqueeze(1), pick(angles.sin()).unsqueeze(1))


def alternating(x: Tensor, p: Tensor, f: Tensor) -> Tensor:
    """The same with the sections interleaved."""
    angles = p[..., None].float() * f
    mixed = torch.slice_scatter(angles[0], angles[1][..., 1:4:3], -1, 1, 4, 3)
    mixed = torch.slice_scatter(mixed, angles[2][..., 2:4:3], -1, 2, 4, 3)
    return by(x, twice(mixed).unsqueeze(1))


def mixed(x: Tensor, p: Tensor, f: Tensor) -> Tensor:
    """Every pair turns by row and column at once."""
    return by(x, twice(p[:, :1].float() * f + p[:, 1:].float() * f.flip(0)))


def grid(x: Tensor, rows: Tensor, columns: Tensor, f: Tensor) -> Tensor:
    """[H, W, D] features with rows and columns apart: each position broadcasts over the other's dimension."""
    first = (rows[:, None, None].float() * f[::2]).expand(-1, len(columns), -1)
    second = (columns[None, :, None].float() * f[::2]).expand(len(rows), -1, -1)
    return by(x, twice(torch.cat((first, second), dim=-1)))


@pytest.mark.parametrize(("program", "shape", "positions", "count"), [
    (axial, (3, 7, D), (7, 2), 2),
    (from_a_table, (3, 7, D), (7, 2), 2),
    (sections, (2, 3, 7, D), (3, 2, 7), 3),
    (alternating, (2, 3, 7, D), (3, 2, 7), 3),
    (mixed, (3, 7, D), (7, 2), 2),
])  # fmt: skip
def test_several_positions(
    program: Any, shape: tuple[int, ...], positions: tuple[int, ...], count: int, turned: Any
) -> None:
    outcome = turned(program, torch.randn(shape), torch.randint(0, 64, positions), INV)
    (rope,) = outcome.ropes
    assert len(rope.args[1]) == len(rope.args[2]) == count
    assert all(f.type.shape == (D // 2,) for f in rope.args[2])
    outcome.check()


def test_rows_and_columns_of_a_grid(turned: Any) -> None:
    outcome = turned(grid, torch.randn(2, 5, 6, D), torch.arange(5), torch.arange(6), INV)
    assert len(outcome.ropes) == 1
    outcome.check()


# -- constant tables -----------------------------------------------------------------------------------------------


def tables(rows: int, exact: bool = True) -> tuple[Tensor, Tensor]:
    """Cosines and sines as float32; exact ones are rounded once, the others from angles already rounded."""
    a = torch.arange(rows).double()[:, None] * INV.double() if exact else torch.arange(rows).float()[:, None] * INV
    return twice(a.cos().float()), twice(a.sin().float())


def gathered(cos: Tensor, sin: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, p: apply(x, cos[p], sin[p])


def test_rows_of_a_constant_table(turned: Any) -> None:
    outcome = turned(gathered(*tables(5000)), torch.randn(2, 5, D), torch.tensor([0, 1, 17, 4095, 4999]))
    (rope,) = outcome.ropes
    assert names(outcome) == ["input"]
    found = outcome.graph.constants[rope.args[2][0].op.attrs["name"]]
    torch.testing.assert_close(found, INV.double(), rtol=1e-9, atol=0)
    before, after = outcome.wide
    assert (after - before).abs().max() < 1e-6  # the table itself is rounded


def test_a_window_of_a_constant_table(turned: Any) -> None:
    cos, sin = tables(64)

    def run(x: Tensor) -> Tensor:
        end = 3 + x.shape[1]
        return apply(x, cos[3:end], sin[3:end])

    outcome = turned(run, torch.randn(2, 9, D))
    assert names(outcome) == ["aten.slice.Tensor"]
    before, after = outcome.wide
    assert (after - before).abs().max() < 1e-6


def test_a_table_in_one_constant(turned: Any) -> None:
    """Sines and cosines side by side, split after the rows are read."""
    cos, sin = tables(64)
    both = torch.cat((sin[:, : D // 2], cos[:, : D // 2]), dim=-1)

    def run(x: Tensor, p: Tensor) -> Tensor:
        s, c = both[p].split(D // 2, dim=-1)
        return apply(x, twice(c), twice(s))

    assert len(turned(run, torch.randn(2, 5, D), torch.arange(5) * 3).ropes) == 1


def test_a_constant_table_of_complex_numbers(turned: Any) -> None:
    cos, sin = tables(64)
    table = torch.complex(cos[:, : D // 2], sin[:, : D // 2])

    def run(x: Tensor, p: Tensor) -> Tensor:
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * table[p]).flatten(-2)

    (rope,) = turned(run, torch.randn(2, 5, D), torch.arange(5) * 3).ropes
    assert rope.attrs["style"] == "interleaved"


def mixed(rows: int) -> tuple[Tensor, Tensor]:
    """Cosines of rounded angles, sines of exact ones."""
    return tables(rows, exact=False)[0], tables(rows)[1]


@pytest.mark.parametrize("rows", [64, 5000])
def test_a_table_of_rounded_angles(rows: int, turned: Any) -> None:
    """It is computed again with angles rounded alike, in float64 too."""
    outcome = turned(gathered(*tables(rows, exact=False)), torch.randn(2, 5, D), torch.tensor([0, 1, 17, 55, rows - 1]))
    (rope,) = outcome.ropes
    assert rope.attrs["rounded"] is True
    (_, _, (frequencies,)) = rope.args
    assert outcome.graph.constants[frequencies.op.attrs["name"]].dtype == torch.float32
    before, after = outcome.wide
    assert (after - before).abs().max() < 1e-6  # float32 cosines of one libm and another's
    eager, ours = outcome.plain
    assert (ours - eager).abs().max() < 1e-6


def spoiled(row: int, column: int) -> tuple[Tensor, Tensor]:
    cos, sin = tables(64)
    cos[row, column] += 1e-4
    return cos, sin


@pytest.mark.parametrize(("table", "reason"), [
    (mixed(5000), "are of different angles"),
    (spoiled(63, 2), "differs from cos(row"),
    (spoiled(1, 0), "differs from cos(row"),
    (tuple(t.bfloat16().float() for t in tables(64)), "differs from"),
    (tuple(reversed(tables(64))), "feature 0"),
    (tuple(t.half() for t in tables(64)), "is of f16"),
], ids=["rounded cosines alone", "last row", "first rows", "rounded twice", "exchanged", "half precision"])  # fmt: skip
def test_a_table_is_checked_wholly(table: tuple[Tensor, Tensor], reason: str, turned: Any) -> None:
    outcome = turned(gathered(*table), torch.randn(2, 5, D), torch.arange(5))
    assert outcome.ropes == [] and reason in outcome.reasons[0]


def test_a_table_that_is_an_input_is_left_with_a_reason(turned: Any) -> None:
    """Its numbers may change between calls."""
    outcome = turned(lambda x, p, c, s: apply(x, c[p], s[p]), torch.randn(2, 5, D), torch.arange(5), *tables(64))
    assert outcome.ropes == []
    assert outcome.reasons == ["%s_1 is an input of the graph: its numbers aren't known when compiling"]


def ids(*shape: int) -> Tensor:
    return torch.randint(0, 1000, shape)


@pytest.mark.parametrize("cut", [True, False])
def test_a_wave_without_its_gradient(cut: bool, turned: Any) -> None:
    """Trained frequencies learn through the cosine and the sine, unless these are detached."""

    def run(x: Tensor, p: Tensor, f: Tensor) -> Tensor:
        a = twice(p[:, None].float() * f)
        cos, sin = (a.cos().detach(), a.sin().detach()) if cut else (a.cos(), a.sin())
        return apply(x, cos, sin) + f.sum()

    x, p, f = torch.randn(2, 5, D), torch.arange(5), INV.clone().requires_grad_()
    outcome = turned(run, x, p, f)
    assert len(outcome.ropes) == 1
    (expected,) = torch.autograd.grad((run(x, p, f) ** 2).sum(), f)
    (found,) = torch.autograd.grad((outcome.module(x, p, f)[0] ** 2).sum(), f)
    torch.testing.assert_close(found, expected)


def test_frequencies_read_off_a_table_are_where_the_rotation_is() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(DType.F32, (4, D), "meta"))
    op = graph.create("aten.cos.default", (x,), (x.type,))
    entries = tuple((Frequency(None, 0, 0.5**i), 1.0) for i in range(D // 2))
    made = Rewrite(graph)._frequencies(entries, False, "meta", op)
    assert tensor_type(made).device == "meta"
    (payload,) = graph.constants.values()
    assert payload.device.type == "meta" and payload.shape == (D // 2,)
