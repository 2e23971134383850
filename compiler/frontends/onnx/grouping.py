"""Nodes that torch can't run, grouped into regions that onnxruntime runs whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import networkx

from attnc.compiler.frontends.onnx.node import Node


def names_read(node: Node) -> Iterator[str]:
    """The values a node reads, those that graphs within it take from around them included."""
    yield from (name for name in node.inputs if name)
    for value in node.attributes.values():
        if hasattr(value, "node") and hasattr(value, "initializer"):
            yield from _free_names(value)


def _free_names(graph: object) -> Iterator[str]:
    made = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}  # type: ignore[attr-defined]
    for node in graph.node:  # type: ignore[attr-defined]
        for name in node.input:
            if name and name not in made:
                yield name
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from (name for name in _free_names(attribute.g) if name not in made)
        made.update(node.output)
    yield from (info.name for info in graph.output if info.name not in made)  # type: ignore[attr-defined]


def grouped(nodes: Sequence[Node], chosen: Collection[Node]) -> list[Node | tuple[Node, ...]]:
    """The nodes in an order they can run in, the chosen ones as groups with nothing of the others between them.

    A group is as large as it can be without waiting for what waits for it: contracting it leaves no cycle.
    """
    graph = _graph(nodes)
    members: dict[int, list[Node]] = {}
    for place, node in enumerate(nodes):
        if node not in chosen:
            continue
        near = [group for group in graph.predecessors(place) if group in members]
        candidates = [*near, *(group for group in members if group not in near)]
        group = next((group for group in candidates if _may_join(graph, group, place)), None)
        if group is None:
            members[place] = [node]
        else:
            networkx.contracted_nodes(graph, group, place, self_loops=False, copy=False)
            members[group].append(node)
    order = networkx.lexicographical_topological_sort(graph)
    return [tuple(members[place]) if place in members else nodes[place] for place in order]


def _graph(nodes: Sequence[Node]) -> networkx.DiGraph:
    """Which node reads of which, by place."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(nodes)))
    makers: dict[str, int] = {}
    for place, node in enumerate(nodes):
        graph.add_edges_from((makers[name], place) for name in names_read(node) if name in makers)
        makers.update((name, place) for name in node.outputs if name)
    return graph


def _may_join(graph: networkx.DiGraph, group: int, place: int) -> bool:
    """Whether no path leads from the group to the node but directly."""
    return not any(networkx.has_path(graph, reader, place) for reader in graph.successors(group) if reader != place)


def boundary(
    group: Sequence[Node], readers: Mapping[str, Collection[Node]], outputs: Collection[str]
) -> tuple[list[str], list[str]]:
    """What a group reads from outside, and what of its results is read there or is an output of the model."""
    inside, made = set(group), {name for node in group for name in node.outputs if name}
    taken = dict.fromkeys(name for node in group for name in names_read(node) if name not in made)
    given = [
        name
        for node in group
        for name in node.outputs
        if name and (name in outputs or any(reader not in inside for reader in readers.get(name, ())))
    ]
    return list(taken), given
