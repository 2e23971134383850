"""Example inputs, and sizes by name."""

from __future__ import annotations

import pytest
import sympy
import torch
from onnx import ModelProto

from attnc.compiler.frontends.onnx.capture import capture_onnx
from attnc.compiler.frontends.onnx.errors import NoForm, OnnxError
from attnc.compiler.frontends.onnx.examples import Lengths, example_inputs, given_inputs, read_formula
from attnc.compiler.frontends.onnx.importer import import_onnx
from attnc.compiler.frontends.onnx.model import read_model
from attnc.compiler.frontends.torch.importer import import_graph
from tests.compiler.frontends.onnx.onnx_models import BOOL, FLOAT, model, node


def with_past() -> ModelProto:
    """Keys of earlier tokens and new ones, with a mask over both."""
    nodes = [node("Concat", "past x", "k", axis=1), node("Where", "mask k zero", "y")]
    inputs = {
        "x": (FLOAT, ["b", "new", 4]),
        "past": (FLOAT, ["b", "past_len", 4]),
        "mask": (BOOL, ["b", "past_len + new", 1]),
    }
    import numpy as np

    return model(nodes, inputs, {"y": (FLOAT, None)}, zero=np.zeros(1, np.float32))


def test_sizes_of_one_name_are_equal() -> None:
    read = read_model(with_past())
    lengths = Lengths(read)
    made = example_inputs(read, lengths)
    b, new, past = (lengths.of_names[name] for name in ("b", "new", "past_len"))
    assert len({b, new, past}) == 3
    assert made["x"].shape == (b, new, 4)
    assert made["mask"].shape == (b, past + new, 1)
    assert made["mask"].dtype == torch.bool


@pytest.mark.parametrize(
    ("text", "value"), [("a", 5), ("a + 2*b", 19), ("a*b//2", 17), ("(a-1)*b", 28), ("a/2", 2), ("3", 3)]
)
def test_formulas(text: str, value: int) -> None:
    formula = read_formula(text)
    assert formula is not None
    assert formula.subs({sympy.Symbol("a"): 5, sympy.Symbol("b"): 7}) == value


NO_FORMULAS = [
    "a.b",
    "f(x)",
    "a**9",
    "a b",
    "'a'",
    "__import__('os')",
    "a+",
    "",
    "lambda: 0",
    "a if b else c",
    "(" * 300,
]


@pytest.mark.parametrize("text", NO_FORMULAS)
def test_what_is_no_formula(text: str) -> None:
    assert read_formula(text) is None


def test_the_graph_has_the_names_of_the_file() -> None:
    imported = import_onnx(with_past())
    graph = import_graph(capture_onnx(imported).exported.graph_module)
    shapes = {value.name: [str(d) for d in value.type.shape] for value in graph.inputs}
    assert shapes["x"] == ["b", "new", "4"]
    assert set(graph.sizes) == {"b", "new", "past_len_from_0"}
    assert graph.sizes["b"].lo == 1
    assert graph.sizes["b"].hi is None


def test_no_earlier_tokens_and_single_ones_work() -> None:
    program = import_onnx(with_past()).program.module()
    for b, new, past in ((1, 1, 0), (2, 1, 3), (1, 4, 0), (3, 5, 2)):
        x, old = torch.randn(b, new, 4), torch.randn(b, past, 4)
        mask = torch.rand(b, past + new, 1) > 0.5
        (y,) = program(x=x, past=old, mask=mask)
        assert torch.equal(y, torch.where(mask, torch.cat((old, x), 1), 0.0))


def test_bounds_are_the_callers() -> None:
    imported = import_onnx(with_past(), sizes={"b": (2, 8), "new": 6})
    graph = import_graph(capture_onnx(imported).exported.graph_module)
    assert (graph.sizes["b"].lo, graph.sizes["b"].hi) == (2, 8)
    assert imported.examples["x"].shape[1] == 6
    with pytest.raises(OnnxError, match="no size named 'batch'; its sizes are b, new, past_len"):
        import_onnx(with_past(), sizes={"batch": 2})


def test_dimensions_without_a_name() -> None:
    proto = model([node("Relu", "x", "y")], {"x": (FLOAT, [None, 4])}, {"y": (FLOAT, None)})
    imported = import_onnx(proto, sizes={"x.0": 11})
    assert imported.examples["x"].shape == (11, 4)
    assert imported.program.module()(x=torch.ones(2, 4))[0].shape == (2, 4)


def test_examples_of_the_caller_are_looked_at() -> None:
    read = read_model(with_past())
    good = example_inputs(read, Lengths(read))
    assert given_inputs(read, good) == good
    with pytest.raises(OnnxError, match="no example for the input 'past'"):
        given_inputs(read, {name: x for name, x in good.items() if name != "past"})
    with pytest.raises(OnnxError, match="no input 'z'; its inputs are x, past, mask"):
        given_inputs(read, {**good, "z": good["x"]})
    with pytest.raises(OnnxError, match=r"the example for 'x' is torch\.float64"):
        given_inputs(read, {**good, "x": good["x"].double()})
    with pytest.raises(OnnxError, match=r"the example for 'x' is .*\[3, 19, 5\]"):
        given_inputs(read, {**good, "x": torch.ones(3, 19, 5)})


def test_inputs_torch_cannot_hold() -> None:
    unranked = model([node("Relu", "x", "y")], {"x": (FLOAT, None)}, {"y": (FLOAT, None)})
    read = read_model(unranked)
    with pytest.raises(NoForm, match="unknown rank"):
        example_inputs(read, Lengths(read))
