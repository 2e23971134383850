"""``--dim``: what can be written, and what it means for the inputs."""

from __future__ import annotations

import pytest
import torch

from attnc.compiler.cli.dims import DimRange, dynamic_shapes, example_sizes, parse_dims
from attnc.compiler.cli.errors import CliError

INPUTS = {"ids": torch.zeros(2, 16, dtype=torch.int64), "x": torch.zeros(2, 3, 8)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("S=2..4096", DimRange("S", 2, 4096)),
        ("S=2..", DimRange("S", 2, None)),
        ("B=4", DimRange("B", 4, 4)),
        ("x.1=1..9", DimRange("x.1", 1, 9)),
    ],
)
def test_a_range_is_read(text: str, expected: DimRange) -> None:
    assert parse_dims([text]) == (expected,)


@pytest.mark.parametrize("text", ["S", "S=", "S=a..b", "=3", "S=..4", "S=-1", "S=1.5"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(CliError, match=r"can't be read; write NAME=LO\.\.HI"):
        parse_dims([text])


@pytest.mark.parametrize("text", ["S=0", "S=4..3", "S=0..9"])
def test_an_empty_range_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="the range is empty"):
        parse_dims([text])


def test_a_name_is_given_once() -> None:
    with pytest.raises(CliError, match="--dim S: given 2 times"):
        parse_dims(["S=2..4", "S=3"])


def test_names_stand_for_axes() -> None:
    shapes = dynamic_shapes(parse_dims(["B=2..8", "S=2..64", "x.1=1..9"]), INPUTS)
    assert shapes is not None
    assert {name: sorted(axes) for name, axes in shapes.items()} == {"ids": [0, 1], "x": [0, 1]}
    assert shapes["ids"][0] is shapes["x"][0]
    assert (shapes["ids"][1].min, shapes["ids"][1].max) == (2, 64)
    assert shapes["x"][1].__name__ == "x_1"


def test_fixed_sizes_are_not_dynamic() -> None:
    assert dynamic_shapes(parse_dims(["B=2", "S=16"]), INPUTS) is None


@pytest.mark.parametrize("name", ["T", "x.3", "y.0"])
def test_an_axis_nobody_has_is_refused(name: str) -> None:
    with pytest.raises(CliError, match=r"inputs are ids \[2, 16\], x \[2, 3, 8\]"):
        dynamic_shapes(parse_dims([f"{name}=2..4"]), INPUTS)


def test_examples_lie_in_the_range() -> None:
    assert example_sizes(parse_dims(["B=1..1", "S=2..4096"])) == {"batch": 1, "length": 16}
    assert example_sizes(parse_dims(["B=3..", "S=2..8"])) == {"batch": 3, "length": 8}
    assert example_sizes(parse_dims(["S=2048"])) == {"length": 2048}
