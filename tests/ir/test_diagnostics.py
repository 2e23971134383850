"""Rendering of problems."""

from __future__ import annotations

from attnc.ir import Diagnostic, parse_graph
from attnc.ir.diagnostics import render

TEXT = """graph @f(%x: f32[4]) {
  %a: f32[4] = aten.relu.default(%x)  loc("m.py":1 "" in "layers.0")
  %b: f32[4] = aten.sin.default(%a)
  %c: f32[4] = aten.cos.default(%b)
  return %c
}
""".replace(' ""', "")


def test_one_problem_has_four_parts() -> None:
    op = parse_graph(TEXT).ops[0]
    assert Diagnostic("error", "ir.op", "it is wrong", op.loc, "do this", op).render() == (
        "error[ir.op]: it is wrong\n"
        '  in: %a: f32[4] = aten.relu.default(%x)  loc("m.py":1 in "layers.0")\n'
        "  at: m.py:1 in layers.0\n"
        "  try: do this"
    )


def test_messages_stand_under_their_ops() -> None:
    graph = parse_graph(TEXT)
    found = [
        Diagnostic("warning", "w.x", "look here", op=graph.ops[1], hint="or there"),
        Diagnostic("error", "e.x", "all of it"),
    ]
    assert render(graph, found) == (
        "graph @f(%x: f32[4]) {\n"
        "  error[e.x]: all of it\n"
        '  %a: f32[4] = aten.relu.default(%x)  loc("m.py":1 in "layers.0")\n'
        "  %b: f32[4] = aten.sin.default(%a)\n"
        "  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  warning[w.x]: look here (or there)\n"
        "  %c: f32[4] = aten.cos.default(%b)\n"
        "}"
    )


def test_context_cuts_the_rest() -> None:
    graph = parse_graph(TEXT)
    found = [Diagnostic("error", "e.x", "here", op=graph.ops[2])]
    lines = render(graph, found, context=0).split("\n")
    assert lines[1:3] == ["  ...", "  %c: f32[4] = aten.cos.default(%b)"]
    found = [Diagnostic("error", "e.x", "here", op=graph.ops[0])]
    assert render(graph, found, context=0).split("\n")[-2] == "  ..."
