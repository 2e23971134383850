"""What has no text form is refused, and equality sees each part of a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnc.ir import (
    DType,
    Graph,
    Literal,
    PrintError,
    SizeInfo,
    TensorType,
    difference,
    equal,
    parse_graph,
    print_graph,
)

TEXT = """graph @f(%x: f32[S] strides(2)) sizes(S in [1, inf]) {
  constant @w: f32[2] = [1.0, 2.0]
  %w: f32[2] = ir.constant() {name = "w"}
  %y: f32[S] = aten.add.Tensor(%x, [1, nan], alpha=2)  loc("model.py":3 "y = x + 1" in "layers.0")
  %z: f32[S] = torch.checkpoint(%y) regions {
    body: graph @body(%a: f32[4]) {
      %b: f32[4] = aten.relu.default(%a)  loc("model.py":9)
      return %b
    }
  }
  return %z
}
"""


def test_the_text_is_stable() -> None:
    assert print_graph(parse_graph(TEXT)) == TEXT
    assert str(parse_graph(TEXT)) == TEXT


def test_locations_can_be_left_out() -> None:
    text = print_graph(parse_graph(TEXT), locations=False)
    assert "loc(" not in text
    assert "%b: f32[4] = aten.relu.default(%a)\n" in text


def test_contiguous_strides_are_not_shown() -> None:
    graph = parse_graph(TEXT)
    graph.inputs[0].type = TensorType(DType.F32, (2, 3), strides=(3, 1))
    assert "%x: f32[2, 3])" in print_graph(graph)
    graph.inputs[0].type = TensorType(DType.F32, (2, 0), strides=(1, 1))
    assert "%x: f32[2, 0])" in print_graph(graph)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g.sizes.update({"a b": SizeInfo()}), "size name 'a b'"),
        (lambda g: setattr(g.ops[0], "name", "constant"), "op name 'constant'"),
        (lambda g: g.ops[1].kwargs.update({"a b": 1}), "keyword 'a b'"),
        (lambda g: g.ops[1].kwargs.update({"x": object()}), "has no text form"),
        (lambda g: g.ops[1].kwargs.update({"x": Literal("dtype", "a>b")}), "has no text form"),
        (lambda g: g.ops[2].regions.update({"a b": Graph()}), "region name 'a b'"),
    ],
)
def test_no_text_form(change: Callable[[Graph], Any], message: str) -> None:
    graph = parse_graph(TEXT)
    change(graph)
    with pytest.raises(PrintError, match=message):
        print_graph(graph)


@pytest.mark.parametrize(
    "change",
    [
        lambda g: setattr(g, "name", "g"),
        lambda g: setattr(g, "outputs", (*g.outputs, 1)),
        lambda g: g.sizes.update({"S": SizeInfo(2)}),
        lambda g: setattr(g.inputs[0], "type", TensorType(DType.F32, (3,))),
        lambda g: g.constants.update({"w": np.array([1.0, 3.0], np.float32)}),
        lambda g: g.ops.pop(),
        lambda g: setattr(g.ops[1], "name", "aten.sub.Tensor"),
        lambda g: setattr(g.ops[1].result, "name", "v"),
        lambda g: setattr(g.ops[1], "args", (g.inputs[0], (1.0, float("nan")))),
        lambda g: g.ops[1].kwargs.update({"alpha": 2.0}),
        lambda g: g.ops[0].attrs.update({"name": "v"}),
        lambda g: setattr(g.ops[1], "loc", replace(g.ops[1].loc, line=4)),
        lambda g: setattr(g.ops[2].regions["body"].ops[0].result, "name", "c"),
    ],
)
def test_equality_sees_a_change(change: Callable[[Graph], Any]) -> None:
    graph, other = parse_graph(TEXT), parse_graph(TEXT)
    assert equal(graph, other)
    change(other)
    assert difference(graph, other) is not None
