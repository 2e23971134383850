"""Coordinates through layout ops: an element of a view is the element of its input that the coordinates name."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnc.compiler.fuse.axes import Axis, Coords, LayoutError, divide, regroup, resolve
from attnc.compiler.fuse.layout import to_input
from attnc.ir.graph import Graph
from attnc.ir.types import DType, TensorType, size
from attnc.ir.values import Op


@st.composite
def steps(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[str, tuple]:
    """A layout op that a tensor of ``shape`` allows, and its arguments."""
    rank = len(shape)
    dim = draw(st.integers(0, rank - 1))
    kind = draw(
        st.sampled_from(("permute", "transpose", "view", "expand", "repeat", "tile", "interleave", "unsqueeze"))
    )
    if kind == "permute":
        return "permute.default", (tuple(draw(st.permutations(range(rank)))),)
    if kind == "transpose":
        return "transpose.int", (dim, draw(st.integers(-rank, rank - 1)))
    if kind == "view":
        total, dims = math.prod(shape), []
        while total > 1 and len(dims) < 3:
            dims.append(draw(st.sampled_from([n for n in range(1, total + 1) if total % n == 0])))
            total //= dims[-1]
        return "reshape.default", ((*dims, total),)
    if kind == "expand":
        return "expand.default", ((2, *(3 if n == 1 else n for n in shape)),)
    if kind == "repeat":
        return "repeat.default", (tuple(2 if i == dim else 1 for i in range(rank)),)
    if kind == "tile":
        return "tile.default", (tuple(2 if i == dim else 1 for i in range(dim, rank)),)
    return ("repeat_interleave.self_int", (2, dim)) if kind == "interleave" else ("unsqueeze.default", (dim,))


def execute(name: str, tensor: torch.Tensor, args: tuple) -> torch.Tensor:
    packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)(tensor, *args)


def index(dim: tuple[Axis, ...], at: dict[Axis, int]) -> int:
    place = 0
    for axis in dim:
        place = place * int(axis.length) + at[axis]
    return place


def points(coords: Coords):
    leaves = list(dict.fromkeys(axis for dim in coords for axis in dim))
    for numbers in itertools.product(*(range(int(axis.length)) for axis in leaves)):
        yield dict(zip(leaves, numbers, strict=True))


@settings(max_examples=150)
@given(st.data())
def test_an_element_is_where_its_coordinates_say(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from((1, 2, 3, 4)), min_size=1, max_size=3)))
    tensor = first = torch.arange(math.prod(shape)).reshape(shape)
    graph = Graph("g")
    value = graph.create("ir.constant", (), (TensorType(DType.I64, shape),), attrs={"name": "c"}).result
    ops: list[Op] = []
    for _ in range(data.draw(st.integers(1, 3))):
        name, args = data.draw(steps(tuple(tensor.shape)))
        tensor = execute(name, tensor, args)
        ops.append(graph.create(f"aten.{name}", (value, *args), (TensorType(DType.I64, tuple(tensor.shape)),)))
        value = ops[-1].result
    if tensor.numel() > 300:
        return
    result: Coords = tuple((Axis(n),) if n > 1 else () for n in tensor.shape)
    coords = result
    try:
        for op in reversed(ops):
            _, coords = to_input(op, resolve(coords))
    except LayoutError:
        return  # refused, not guessed
    result, coords = resolve(result), resolve(coords)
    for at in points(result):
        out = tuple(index(dim, at) for dim in result)
        assert tensor[out] == first[tuple(index(dim, at) for dim in coords)]


def test_a_view_splits_symbolic_lengths() -> None:
    batch, heads = size("B"), 4
    folded = Axis(batch * heads)
    outer, inner = regroup((folded,), (batch, heads))
    assert [axis.length for axis in (*outer, *inner)] == [batch, heads]
    assert folded.leaves() == (*outer, *inner)


def test_what_does_not_divide_is_refused() -> None:
    assert divide(6, 4) is None and divide(size("B"), 2) is None
    with pytest.raises(LayoutError, match="a view cuts the"):
        regroup((Axis(4), Axis(3)), (6, 2))
    with pytest.raises(LayoutError, match="a view cuts the"):
        regroup((Axis(6, atomic=True),), (2, 3))
