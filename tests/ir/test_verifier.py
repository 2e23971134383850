"""One broken graph per rule, and that all problems are reported together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy

from attnc.ir import (
    DType,
    Graph,
    Literal,
    OpaqueType,
    ScalarType,
    SizeInfo,
    TensorType,
    VerifyError,
    parse_graph,
    size,
    verify,
)
from attnc.ir.verifier import problems

F32 = TensorType(DType.F32, (size("S"), 4))


def small() -> Graph:
    return parse_graph(
        """graph @f(%x: f32[S, 4], %n: int<S>) sizes(S in [1, inf]) {
  %y: f32[S, 4] = aten.relu.default(%x)  loc("model.py":3 "y = x.relu()")
  %z: f32[S, 4] = aten.add.Tensor(%y, %x, alpha=2)
  return %z
}"""
    )


def codes(graph: Graph) -> list[str]:
    return [problem.code for problem in problems(graph)]


def messages(graph: Graph) -> str:
    with pytest.raises(VerifyError) as caught:
        verify(graph)
    return str(caught.value)


def test_a_valid_graph_has_no_problems(gqa: str) -> None:
    assert codes(small()) == []
    assert codes(parse_graph(gqa)) == []


def test_names_are_unique() -> None:
    graph = small()
    graph.ops[1].result.name = "y"
    assert "%y is defined twice" in messages(graph)


def test_names_are_not_empty() -> None:
    graph = small()
    graph.inputs[0].name = ""
    assert "a value has an empty name" in messages(graph)


def test_producers_are_right() -> None:
    graph = small()
    graph.ops[1].result.op = graph.ops[0]
    assert "%z says that its producer is aten.relu.default" in messages(graph)


def test_values_are_defined_above_their_uses() -> None:
    graph = small()
    graph.ops.reverse()
    assert codes(graph) == ["ir.order"]
    assert "%y is read above its definition" in messages(graph)


def test_values_belong_to_the_graph() -> None:
    graph, other = small(), small()
    graph.create("aten.relu.default", [other.inputs[0]], [F32])
    assert "%x is not defined in this graph" in messages(graph)


def test_outputs_are_defined() -> None:
    graph, other = small(), small()
    graph.outputs = (other.ops[0].result,)
    assert "output %y is not defined in this graph" in messages(graph)


def test_an_op_stands_once() -> None:
    graph = small()
    graph.ops.append(graph.ops[0])
    assert "the op stands twice" in messages(graph)


def test_use_lists_miss_no_use() -> None:
    graph = small()
    graph.ops[0].args = (graph.inputs[0], graph.inputs[0])
    assert "the use list of %x has aten.relu.default 1 times, but it reads the value 2 times" in messages(graph)


def test_use_lists_name_no_removed_op() -> None:
    graph = small()
    graph.outputs = ()
    del graph.ops[1]
    assert codes(graph) == ["ir.uses", "ir.uses"]


@pytest.mark.parametrize(
    ("arg", "message"),
    [
        ([1, 2], "is a list, which is no kind of argument"),
        (np.float32(1), "is a float32"),
        (((object(),),), "is a object"),
        (Literal("shape", "x"), "literal kind 'shape'"),
    ],
)
def test_arguments_are_of_the_irs_kinds(arg: Any, message: str) -> None:
    graph = small()
    graph.create("aten.relu.default", [graph.inputs[0], arg], [F32])
    assert message in messages(graph)


def test_keywords_are_identifiers() -> None:
    graph = small()
    graph.create("aten.relu.default", [], [F32], kwargs={"not one": 1})
    assert "'not one' cannot name a keyword" in messages(graph)


def test_op_names_have_a_dialect() -> None:
    graph = small()
    graph.ops[0].name = "relu"
    assert "'relu' is not an op name" in messages(graph)


@pytest.mark.parametrize("name", ["attn.flash", "py.divmod", "ir.module"])
def test_closed_dialects_hold_no_other_op(name: str) -> None:
    graph = small()
    graph.create(name, [], [F32])
    assert f"{name} is not an op of the closed dialect" in messages(graph)


def test_open_dialects_hold_any_op() -> None:
    graph = small()
    graph.create("transformers.flash", [graph.inputs[0]], [F32])
    assert codes(graph) == []


@pytest.mark.parametrize(
    ("type", "message"),
    [
        (TensorType(DType.F32, (size("T"),)), "size T of dimension T is not declared"),
        (TensorType(DType.F32, (sympy.Symbol("S"),)), "symbol S of dimension S is not a size"),
        (TensorType(DType.F32, (-1,)), "negative length -1"),
        (TensorType(DType.F32, (2.0,)), "neither an int nor an integer expression"),
        (TensorType(DType.F32, (2,), strides=(1, 1)), "2 strides for rank 1"),
        (TensorType(DType.F32, (2,), atoms=()), "atoms of 0 dimensions for rank 1"),
        (TensorType(DType.F32, (2,), atoms=(("a b",),)), "atom 'a b'"),
        (TensorType("f32", (2,)), "'f32' is not a dtype"),  # type: ignore[arg-type]
        (ScalarType("str"), "scalar kind 'str'"),
        ("f32", "'f32' is not a type"),
    ],
)
def test_types_are_well_formed(type: Any, message: str) -> None:
    graph = small()
    graph.add_input("t", type)
    assert message in messages(graph)


@pytest.mark.parametrize("bounds", [SizeInfo(-1, 4), SizeInfo(5, 4)])
def test_size_bounds_are_a_range(bounds: SizeInfo) -> None:
    graph = small()
    graph.sizes["S"] = bounds
    assert codes(graph) == ["ir.size"]


def test_size_names_are_identifiers() -> None:
    graph = small()
    graph.sizes["a b"] = SizeInfo()
    assert "size name 'a b' is not an identifier" in messages(graph)


def test_constants_exist() -> None:
    graph = small()
    graph.create("ir.constant", [], [F32], attrs={"name": "w"})
    assert "constant @w is not in the graph's constants" in messages(graph)


def test_constants_have_the_type_of_their_array() -> None:
    graph = small()
    graph.constants["w"] = np.zeros(3)
    graph.create("ir.constant", [], [TensorType(DType.F32, (3,))], attrs={"name": "w"})
    assert "constant @w is f64[3], which differs" in messages(graph)


def test_regions_are_checked() -> None:
    graph, inner = small(), small()
    inner.ops.reverse()
    graph.create("torch.checkpoint", [graph.inputs[0]], [F32]).regions["body"] = inner
    assert codes(graph) == ["ir.order"]


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "attrs", "message"),
    [
        ("py.add", (1,), {}, {}, "1 arguments, expected 2"),
        ("py.add", (1, "two"), {}, {}, "argument y must be a number or a host scalar"),
        ("py.add", (1, 2), {"out": 1}, {}, "takes no keyword arguments"),
        ("py.add", (1, 2), {}, {"mode": "fast"}, "py.add has no attribute mode"),
        ("ir.constant", (), {}, {}, "attribute name is missing"),
        ("ir.constant", (), {}, {"name": 3}, "attribute name must be str, is int"),
        ("ir.constant", (), {}, {"name": ""}, "the constant's name is empty"),
    ],
)
def test_declared_ops_fit_their_signature(name: str, args: Any, kwargs: Any, attrs: Any, message: str) -> None:
    graph = small()
    graph.create(name, args, [ScalarType("int")], kwargs=kwargs, attrs=attrs)
    assert message in messages(graph)


def test_declared_ops_have_their_results() -> None:
    graph = small()
    graph.create("py.add", (1, 2), [ScalarType("int")] * 2)
    assert "2 results, expected 1" in messages(graph)


def test_declared_ops_take_no_regions() -> None:
    graph = small()
    graph.create("py.add", (1, 2), [ScalarType("int")]).regions["body"] = small()
    assert "py.add takes no regions" in messages(graph)


def test_an_unprintable_op_is_still_reported() -> None:
    graph = small()
    graph.create("aten.relu.default", [object()], [OpaqueType("x")])  # type: ignore[list-item]
    assert "aten.relu.default(<unprintable" in messages(graph)


def test_all_problems_are_reported_with_place_and_excerpt() -> None:
    graph = small()
    graph.ops[0].args = (graph.inputs[0], [1])  # type: ignore[assignment]
    graph.sizes["S"] = SizeInfo(3, 2)
    with pytest.raises(VerifyError) as caught:
        verify(graph)
    error = caught.value
    assert len(error.diagnostics) == 2
    assert "at: model.py:3" in str(error)
    assert "error[ir.argument]" in error.__notes__[0]
