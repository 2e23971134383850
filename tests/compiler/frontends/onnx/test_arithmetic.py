"""Shapes written as graphs of integers leave nothing in the imported graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import ModelProto

from attnc.compiler.frontends.onnx.importer import import_onnx
from tests.compiler.frontends.onnx.onnx_models import FLOAT, INT64, model, node, onnxruntime_says

I64 = np.int64


def heads_by_shape() -> ModelProto:
    """[b, s, 12] → [b, s, 3, 4], with every length asked of the tensor."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "b"),
        node("Slice", "shape one two", "s"),
        node("Gather", "shape last", "width"),
        node("Div", "width three", "each"),
        node("Unsqueeze", "b axis", "b1"),
        node("Unsqueeze", "each axis", "each1"),
        node("Concat", "b1 s three1 each1", "wanted", axis=0),
        node("Reshape", "x wanted", "y"),
    ]
    constants = {"zero": 0, "last": -1, "three": 3, "one": [1], "two": [2], "axis": [0], "three1": [3]}
    arrays = {name: np.array(value, I64) for name, value in constants.items()}
    return model(nodes, {"x": (FLOAT, ["b", "s", 12])}, {"y": (FLOAT, None)}, **arrays)


def expand_by_where() -> ModelProto:
    """torch's expand with −1, as the first exporter writes it: Where(shape == −1, ones, shape)."""
    nodes = [
        node("Shape", "x", "shape", start=0, end=1),
        node("Concat", "shape minus1 four", "wanted", axis=0),
        node("ConstantOfShape", "three", "ones0"),
        node("Add", "ones0 unit", "ones"),
        node("Mul", "ones minus", "minuses"),
        node("Equal", "wanted minuses", "kept"),
        node("Where", "kept ones wanted", "lengths"),
        node("Expand", "x lengths", "y"),
    ]
    constants = {"minus1": [-1], "four": [4], "three": [3], "unit": 1, "minus": -1}
    arrays = {name: np.array(value, I64) for name, value in constants.items()}
    proto = model(nodes, {"x": (FLOAT, ["b", "s", 1])}, {"y": (FLOAT, None)}, **arrays)
    fill = onnx_zero()
    next(n for n in proto.graph.node if n.op_type == "ConstantOfShape").attribute.append(fill)
    return proto


def onnx_zero() -> object:
    from onnx import helper

    return helper.make_attribute("value", helper.make_tensor("v", INT64, [1], [0]))


def flat_positions() -> ModelProto:
    """Range(0, b·s) reshaped to [b, s], and the length as a number of the graph."""
    nodes = [
        node("Shape", "x", "shape"),
        node("ReduceProd", "shape", "count", keepdims=0),
        node("Range", "zero count one", "flat"),
        node("Reshape", "flat shape", "y"),
        node("Max", "count one", "most"),
        node("Cast", "most", "z", to=FLOAT),
    ]
    arrays = {name: np.array(value, I64) for name, value in {"zero": 0, "one": 1}.items()}
    return model(nodes, {"x": (FLOAT, ["b", "s"])}, {"y": (INT64, None), "z": (FLOAT, None)}, **arrays)


CASES = {"heads": (heads_by_shape, (12,)), "expand": (expand_by_where, (1,)), "positions": (flat_positions, ())}


@pytest.mark.parametrize("name", CASES)
def test_shapes_are_formulas(name: str) -> None:
    build, tail = CASES[name]
    proto = build()
    imported = import_onnx(proto)
    assert not imported.left
    for b, s in ((1, 1), (2, 9), (5, 3)):
        x = torch.randn(b, s, *tail)
        wanted = onnxruntime_says(proto, {"x": x.numpy()})
        for made, truth in zip(imported.program.module()(x=x), wanted, strict=True):
            np.testing.assert_array_equal(made.numpy(), truth)


def test_nothing_of_a_shape_is_left() -> None:
    imported = import_onnx(heads_by_shape())
    ops = [n.target for n in imported.program.graph.nodes if n.op == "call_function"]
    tensors = [op for op in ops if "sym_size" not in str(op) and "sym_constrain" not in str(op)]
    assert tensors == [torch.ops.aten.reshape.default] or tensors == [torch.ops.aten.view.default]


@pytest.mark.parametrize(("a", "b", "quotient"), [(7, 2, 3), (-7, 2, -3), (7, -2, -3), (-6, 3, -2)])
def test_integers_divide_toward_zero(a: int, b: int, quotient: int) -> None:
    proto = model([node("Div", "x c", "y")], {"x": (INT64, ["n"])}, {"y": (INT64, None)}, c=np.array(b, I64))
    imported = import_onnx(proto)
    x = torch.full((4,), a)
    assert (
        imported.program.module()(x=x)[0].tolist()
        == [quotient] * 4
        == onnxruntime_says(proto, {"x": x.numpy()})[0].tolist()
    )
