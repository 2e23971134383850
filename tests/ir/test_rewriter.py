"""Edits keep a graph valid; order and dominance are right."""

from __future__ import annotations

import random

import pytest

from attnc.ir import DType, Graph, NoneType, Rewriter, TensorType, Value, parse_graph, print_graph, verify
from attnc.ir.rewriter import dominators, erase_dead, is_ordered, postdominators, sort_ops

F32 = TensorType(DType.F32, (4,))

DIAMOND = """graph @f(%x: f32[4]) {
  %a: f32[4] = aten.relu.default(%x)
  %b: f32[4] = aten.sin.default(%a)
  %c: f32[4] = aten.cos.default(%a)
  %d: f32[4] = aten.add.Tensor(%b, %c)
  %e: f32[4] = aten.mul.Tensor(%d, %a)
  return %e
}
"""


def values(graph: Graph) -> dict[str, Value]:
    return {value.name: value for value in [*graph.inputs, *(r for op in graph.ops for r in op.results)]}


def name_of(node: object) -> str | None:
    if node is None:
        return None
    return node.name if isinstance(node, Value) else node.results[0].name  # type: ignore[attr-defined]


def test_replace_and_erase_what_died() -> None:
    graph = parse_graph(DIAMOND)
    rewriter = Rewriter(graph)
    add = values(graph)["d"].op
    assert add is not None
    new = rewriter.insert_before(add, "aten.exp.default", [graph.inputs[0]], [F32], names=["n"])
    rewriter.replace(add, new.results)
    assert rewriter.erase_dead() == 2
    assert rewriter.changed
    verify(graph)
    assert (
        print_graph(graph)
        == """graph @f(%x: f32[4]) {
  %a: f32[4] = aten.relu.default(%x)
  %n: f32[4] = aten.exp.default(%x)
  %e: f32[4] = aten.mul.Tensor(%n, %a)
  return %e
}
"""
    )


def test_replaced_outputs_are_read_from_the_new_value() -> None:
    graph = parse_graph(DIAMOND)
    Rewriter(graph).replace_value(values(graph)["e"], values(graph)["a"])
    assert erase_dead(graph) == 4
    verify(graph)
    assert graph.output_values() == [graph.ops[0].result]


def test_replace_needs_a_value_a_result() -> None:
    graph = parse_graph(DIAMOND)
    with pytest.raises(ValueError, match=r"replacing aten.relu.default: 0 values for 1 results"):
        Rewriter(graph).replace(graph.ops[0], [])


def test_insert_infers_types_and_inherits_the_location(gqa: str) -> None:
    graph = parse_graph(gqa)
    op = graph.ops[0]
    new = Rewriter(graph).insert_before(op, op.name, op.args, attrs=op.attrs)
    assert [r.type for r in new.results] == [r.type for r in op.results]
    assert new.loc == op.loc
    verify(graph)


def test_effects_and_random_ops_stay() -> None:
    graph = Graph()
    x = graph.add_input("x", F32)
    dead = graph.create("aten.relu.default", [x], [F32])
    kept = [
        graph.create("aten.add_.Tensor", [x, 1], [F32]),
        graph.create("aten.rand.default", [(4,)], [F32]),
        graph.create("torch.set_grad_enabled", [False], [NoneType()]),
        graph.create("transformers.mixer", [x], [F32]),
    ]
    assert erase_dead(graph) == 1
    assert graph.ops == kept
    assert dead not in x.uses


def test_erase_refuses_what_is_read() -> None:
    graph = parse_graph(DIAMOND)
    with pytest.raises(ValueError, match="%a is still read"):
        graph.erase(graph.ops[0])


def test_sort_restores_order_and_keeps_it() -> None:
    graph = parse_graph(DIAMOND)
    before = list(graph.ops)
    sort_ops(graph)
    assert graph.ops == before
    random.Random(0).shuffle(graph.ops)
    assert not is_ordered(graph)
    sort_ops(graph)
    assert is_ordered(graph)
    verify(graph)


def test_sort_keeps_effects_in_order() -> None:
    graph = Graph()
    x = graph.add_input("x", F32)
    late = graph.create("aten.relu.default", [x], [F32])
    first = graph.create("aten.add_.Tensor", [late.result], [F32])
    second = graph.create("aten.mul_.Tensor", [x], [F32])
    graph.ops = [first, second, late]
    sort_ops(graph)
    assert graph.ops == [late, first, second]


def test_sort_refuses_a_cycle() -> None:
    graph = parse_graph(DIAMOND)
    graph.ops[0].set_args((values(graph)["e"],))
    with pytest.raises(ValueError, match="cycle"):
        sort_ops(graph)


def test_dominance() -> None:
    graph = parse_graph(DIAMOND)
    down = {name_of(n): name_of(d) for n, d in dominators(graph).items()}
    assert down == {"x": None, "a": "x", "b": "a", "c": "a", "d": "a", "e": "a"}
    up = {name_of(n): name_of(d) for n, d in postdominators(graph).items()}
    assert up == {"x": "a", "a": "e", "b": "d", "c": "d", "d": "e", "e": None}


def test_networkx_view() -> None:
    graph = parse_graph(DIAMOND)
    view = graph.to_networkx()
    edges = {(name_of(s), name_of(u), tuple(v.name for v in d)) for s, u, d in view.edges(data="values")}
    assert ("x", "a", ("x",)) in edges
    assert ("a", "e", ("a",)) in edges
    assert len(edges) == 7


def test_dot_names_ops_and_edges() -> None:
    dot = parse_graph(DIAMOND).to_dot()
    assert dot.startswith('digraph "f" {')
    assert '"aten.add.Tensor"' in dot
    assert 'op0 -> op1 [label="%a: f32[4]"]' in dot
    assert 'op4 -> output [label="%e"]' in dot


def test_fresh_names_count_up() -> None:
    graph = Graph()
    assert [graph.fresh(n) for n in ("x", "x", "x_1", "x", "x_1")] == ["x", "x_1", "x_1_1", "x_2", "x_1_2"]
