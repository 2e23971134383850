"""Names of results, and which inputs a program writes."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
from torch.utils import _pytree as pytree

from attnc.compiler.host.ports import output_names, unique, written_inputs
from attnc.runtime.host_program import HostProgram, Input, Step
from attnc.runtime.host_steps import Register


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Fields:
    left: Any
    right: Any


class Keyless:
    """A node whose context says nothing of its children."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items


pytree.register_dataclass(Fields)
pytree.register_pytree_node(Keyless, lambda node: (node.items, None), lambda items, _: Keyless(list(items)))


@pytest.mark.parametrize(
    ("results", "names"),
    [
        (1, ["output"]),
        ((1,), ["output_0"]),
        ((1, [2, 3]), ["output_0", "output_1.0", "output_1.1"]),
        ({"b": 1, "a": {"c": (2, None)}}, ["b", "a.c.0", "a.c.1"]),
        (OrderedDict([("logits", 1), (3, 2)]), ["logits", "output_3"]),
        (Pair(1, {"x": 2}), ["first", "second.x"]),
        (Fields((1, 2), 3), ["left.0", "left.1", "right"]),
        (Keyless([1, Pair(2, 3)]), ["output_0", "output_1.first", "output_1.second"]),
        ({"a.0": 1, "a": (2,)}, ["a.0", "a.0_1"]),
        ((), []),
    ],
)
def test_names_of_results(results: Any, names: list[str]) -> None:
    leaves, spec = pytree.tree_flatten(results)
    assert len(leaves) == len(names) and list(output_names(spec)) == names


def test_a_model_s_own_names() -> None:
    _, spec = pytree.tree_flatten((1, 2))
    assert output_names(spec, ["logits", "state"]) == ("logits", "state")
    assert output_names(spec, ["one"]) == output_names(spec, ["same", "same"]) == ("output_0", "output_1")


def test_unique_names() -> None:
    assert unique(["a", "a", "a_1", "b", "a"]) == ("a", "a_1", "a_1_1", "b", "a_2")


def test_written_inputs() -> None:
    """Directly, through a view of a view, through an element of a list; not through a copy."""
    steps = (
        Step("aten.view.default", (Register(0), (6,)), (), 5),
        Step("aten.slice.Tensor", (Register(5), 0, 1, 3), (), 6),
        Step("aten.add_.Scalar", (Register(6), 1), (), None),
        Step("aten.split.Tensor", (Register(1), 1), (), (7, 8)),
        Step("aten.copy_.default", (Register(8), Register(7)), (), None),
        Step("aten.clone.default", (Register(2),), (), 9),
        Step("aten.add_.Scalar", (Register(9), 1), (), None),
        Step("aten.copy_.default", (Register(3), Register(4)), (), 10),
        Step("aten.mul_.Scalar", (Register(10), 2), (), None),
    )
    inputs = tuple(Input(name, "f32", ((2,), (3,))) for name in "abcde")
    program = HostProgram((), inputs, (), (), steps, ())
    assert written_inputs(program) == {0, 1, 3}
