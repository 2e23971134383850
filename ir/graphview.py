"""A graph seen as networkx and as Graphviz text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from attnc.ir.graph import Graph
from attnc.ir.ops.effects import is_effect
from attnc.ir.typetext import show_type
from attnc.ir.values import Op, Value

if TYPE_CHECKING:
    import networkx

Node = Op | Value
"""An op, or a graph input."""


def to_networkx(graph: Graph, *, effects: bool = False) -> networkx.DiGraph[Node]:
    """Nodes are ops and graph inputs, in execution order; an edge goes from producer to user, with ``values`` read.

    ``effects`` adds edges (without values) that keep ops with side effects in order.
    """
    import networkx

    view: networkx.DiGraph[Node] = networkx.DiGraph()
    view.add_nodes_from([*graph.inputs, *graph.ops])
    last: Op | None = None
    for op in graph.ops:
        for value in dict.fromkeys(op.operands):
            producer = value.op or value
            if view.has_edge(producer, op):
                view.edges[producer, op]["values"] += (value,)
            else:
                view.add_edge(producer, op, values=(value,))
        if effects and is_effect(op):
            if last is not None and not view.has_edge(last, op):
                view.add_edge(last, op, values=())
            last = op
    return view


def to_dot(graph: Graph) -> str:
    """The graph in Graphviz's language, edges labelled with value names and types."""
    names: dict[Node, str] = {value: f"input{i}" for i, value in enumerate(graph.inputs)}
    names |= {op: f"op{i}" for i, op in enumerate(graph.ops)}
    lines = [f"digraph {json.dumps(graph.name)} {{", "  node [shape=box, fontname=monospace];"]
    for value in graph.inputs:
        lines.append(f"  {names[value]} [label={json.dumps('%' + value.name)}, shape=ellipse];")
    for op in graph.ops:
        lines.append(f"  {names[op]} [label={json.dumps(op.name)}];")
    for source, user, values in to_networkx(graph).edges(data="values"):
        label = "\n".join(f"%{v.name}: {show_type(v.type)}" for v in values)
        lines.append(f"  {names[source]} -> {names[user]} [label={json.dumps(label)}];")
    lines.append("  output [shape=ellipse];")
    for value in dict.fromkeys(graph.output_values()):
        lines.append(f"  {names[value.op or value]} -> output [label={json.dumps('%' + value.name)}];")
    return "\n".join([*lines, "}"]) + "\n"
