"""Nodes that onnxruntime runs."""

from __future__ import annotations

import dataclasses
import itertools

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper

import attnc
from attnc.compiler.frontends.onnx import table
from attnc.compiler.frontends.onnx.errors import OnnxError
from attnc.compiler.frontends.onnx.grouping import boundary, grouped, names_read
from attnc.compiler.frontends.onnx.importer import import_onnx
from attnc.compiler.frontends.onnx.node import Node, read_node
from tests.compiler.frontends.onnx.onnx_models import BOOL, FLOAT, INT64, graph, model, node, onnxruntime_says


def between() -> ModelProto:
    """Torch's work on both sides of one node, whose result has as many rows as there are positive sums."""
    nodes = [
        node("ReduceSum", "x one", "sums", keepdims=0),
        node("Greater", "sums zero", "positive"),
        node("NonZero", "positive", "places"),
        node("Squeeze", "places axis0", "index"),
        node("Gather", "x index", "rows", axis=0),
        node("Relu", "rows", "y"),
        node("Mul", "x x", "z"),
    ]
    arrays = {"one": np.array([1]), "zero": np.float32(0), "axis0": np.array([0])}
    return model(nodes, {"x": (FLOAT, ["n", 6])}, {"y": (FLOAT, None), "z": (FLOAT, None)}, **arrays)


def branch() -> ModelProto:
    """A branch on data, each side reading a value from around it."""
    then = graph([node("Add", "h h", "t")], {}, {"t": (FLOAT, None)})
    other = graph([node("Neg", "h", "e")], {}, {"e": (FLOAT, None)})
    nodes = [
        node("Tanh", "x", "h"),
        node("ReduceMax", "x", "top", keepdims=0),
        node("Greater", "top zero", "c"),
        node("If", "c", "r", then_branch=then, else_branch=other),
        node("Exp", "r", "y"),
    ]
    return model(nodes, {"x": (FLOAT, ["n", 3])}, {"y": (FLOAT, None)}, zero=np.float32(0.0))


@pytest.mark.parametrize("build", [between, branch])
def test_what_torch_cannot_run(build: object) -> None:
    proto = build()  # type: ignore[operator]
    program = attnc.compile(proto)
    notes = [note for note in program.report.notes if note.code == "ATTNC-ONNX-REGION"]
    assert len(notes) == 1
    assert "nodes run in onnxruntime" in notes[0].message
    width = 6 if build is between else 3
    for rows in (1, 4, 13):
        x = torch.randn(rows, width)
        for made, wanted in zip(program(x=x), onnxruntime_says(proto, {"x": x.numpy()}), strict=True):
            np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-6, atol=1e-6)


def test_the_rest_stays_in_torch() -> None:
    imported = import_onnx(between())
    assert [n.op for n in imported.left] == ["NonZero"]
    targets = [str(n.target) for n in imported.program.graph.nodes if n.op == "call_function"]
    assert targets.count("onnx.region.default") == 1
    assert any("relu" in target for target in targets)


def test_constant_conditions_leave_no_branch() -> None:
    proto = branch()
    proto.graph.node[2].CopyFrom(node("Greater", "zero one", "c"))
    proto.graph.initializer.append(helper.make_tensor("one", FLOAT, [], [1.0]))
    imported = import_onnx(proto)
    assert not imported.left
    x = torch.randn(5, 3)
    torch.testing.assert_close(imported.program.module()(x=x)[0], torch.exp(-torch.tanh(x)))


@pytest.mark.parametrize("kind", [BOOL, INT64, FLOAT])
def test_types_pass_through_a_region(kind: int) -> None:
    proto = (
        model(
            [node("Unique", "x", "u i _ c", sorted=1), node("Cast", "u", "y", to=FLOAT)],
            {"x": (kind, ["n"])},
            {"y": (FLOAT, None), "i": (INT64, None), "c": (INT64, None)},
        )
        if kind != BOOL
        else model(
            [node("NonZero", "x", "n"), node("Cast", "n", "y", to=FLOAT)], {"x": (BOOL, ["n"])}, {"y": (FLOAT, None)}
        )
    )
    x = torch.tensor([3, 1, 3, 0, 2, 2]).to({BOOL: torch.bool, INT64: torch.int64, FLOAT: torch.float32}[kind])
    program = attnc.compile(proto)
    for made, wanted in zip(program(x=x), onnxruntime_says(proto, {"x": x.numpy()}), strict=True):
        np.testing.assert_array_equal(made.numpy(), wanted)


def nodes_of(edges: list[list[int]]) -> list[Node]:
    """Node i makes the value ``v i`` and reads those its list names."""
    protos = [helper.make_node("Op", [f"v{j}" for j in sources] or ["x"], [f"v{i}"]) for i, sources in enumerate(edges)]
    return [read_node(proto, {"": 17}) for proto in protos]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Node], list[Node]]:
    size = draw(st.integers(1, 12))
    edges = [draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else [] for i in range(size)]
    nodes = nodes_of(edges)
    return nodes, [n for n in nodes if draw(st.booleans())]


@given(graphs())
@settings(max_examples=150, deadline=None)
def test_groups_run_in_order_and_none_is_cut_in_vain(case: tuple[list[Node], list[Node]]) -> None:
    nodes, chosen = case
    items = grouped(nodes, chosen)
    flat = [n for item in items for n in (item if isinstance(item, tuple) else (item,))]
    assert sorted(map(id, flat)) == sorted(map(id, nodes))
    made = {"x"}
    for item in items:
        members = item if isinstance(item, tuple) else (item,)
        inside = {name for n in members for name in n.outputs}
        for n in members:
            assert set(names_read(n)) <= made | inside
        made |= inside
    groups = [item for item in items if isinstance(item, tuple)]
    assert {n for group in groups for n in group} == set(chosen)
    assert all(not _is_convex(nodes, set(a) | set(b)) for a, b in itertools.combinations(groups, 2)) or len(groups) > 2


def _is_convex(nodes: list[Node], part: set[Node]) -> bool:
    """Whether no path leaves a set of nodes and comes back."""
    whole = networkx.DiGraph()
    whole.add_nodes_from(nodes)
    makers = {name: n for n in nodes for name in n.outputs}
    whole.add_edges_from((makers[name], n) for n in nodes for name in names_read(n) if name in makers)
    outside = whole.subgraph(n for n in nodes if n not in part)
    for n in outside:
        after = networkx.descendants(whole, n) & part
        if after and networkx.ancestors(whole, n) & part:
            return False
    return True


def test_what_a_group_reads_and_gives() -> None:
    nodes = nodes_of([[], [0], [1], [2, 0]])
    readers = {f"v{i}": [n for n in nodes if f"v{i}" in n.inputs] for i in range(4)}
    assert boundary(nodes[1:3], readers, ["v1"]) == (["v0"], ["v1", "v2"])


def test_a_form_that_torch_refuses_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours must not stop a model that onnxruntime runs; one of the model must."""
    proto = model([node("Exp", "x", "h"), node("Neg", "h", "y")], {"x": (FLOAT, ["n"])}, {"y": (FLOAT, None)})
    broken = dataclasses.replace(table._TABLE["", "Exp"][0], form=lambda node, x: x.reshape(7, 7, 7))
    monkeypatch.setitem(table._TABLE, ("", "Exp"), [broken])
    program = attnc.compile(proto)
    (note,) = [note for note in program.report.notes if note.code == "ATTNC-ONNX-REGION"]
    assert "Exp: torch refuses it" in note.message
    x = torch.randn(9)
    torch.testing.assert_close(program(x=x)[0], -torch.exp(x))


def test_a_model_that_is_wrong_is_not() -> None:
    proto = model([node("MatMul", "x w", "y")], {"x": (FLOAT, ["n", 4])}, {"y": (FLOAT, None)}, w=np.ones((5, 3), "f"))
    with pytest.raises(
        OnnxError, match=r"importing MatMul, node '/matmul_y': x is float32\[.*, 4\], w is float32\[5, 3\]"
    ):
        attnc.compile(proto)


def test_what_torch_cannot_hold_is_left_whole() -> None:
    proto = model([node("SequenceConstruct", "x x", "y")], {"x": (FLOAT, ["n"])}, {"y": (FLOAT, None)})
    proto.graph.output[0].CopyFrom(helper.make_tensor_sequence_value_info("y", FLOAT, None))
    program = attnc.compile(proto)
    assert [note.code for note in program.report.notes] == ["ATTNC-ONNX-WHOLE"]
    x = torch.randn(3)
    ((first, second),) = program(x=x)
    assert torch.equal(first, x)
    assert torch.equal(second, x)


def test_operators_of_old_sets_run_where_their_meaning_is_known() -> None:
    """Relu meant the same in operator set 9; Clip had its bounds as attributes."""
    nodes = [node("Relu", "x", "h"), node("Clip", "h", "y", min=0.25, max=0.75)]
    proto = model(nodes, {"x": (FLOAT, ["n"])}, {"y": (FLOAT, None)}, opset=9)
    proto.ir_version = 4
    imported = import_onnx(proto)
    assert [n.op for n in imported.left] == ["Clip"]
    x = torch.randn(50)
    torch.testing.assert_close(imported.program.module()(x=x)[0], x.clamp(0.25, 0.75))
