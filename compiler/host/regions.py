"""Regions of higher-order ops, copied into the graph that calls them."""

from __future__ import annotations

import operator
from typing import Any

import torch


def copy_body(
    gm: torch.fx.GraphModule, body: Any, call: torch.fx.Node, inputs: list[Any], tags: dict[str, Any], prefix: str
) -> Any:
    """Copy a region's nodes before ``call`` and return its results as an FX argument over the copies."""
    placeholders = body.graph.find_nodes(op="placeholder")
    env: dict[torch.fx.Node, Any] = dict(zip(placeholders, inputs, strict=True))
    with gm.graph.inserting_before(call):
        for node in body.graph.nodes:
            if node.op == "placeholder":
                continue
            if node.op == "output":
                return torch.fx.node.map_arg(node.args[0], lambda n: env[n])
            copy = gm.graph.node_copy(node, lambda n: env[n])
            copy.meta = {**node.meta, **tags}
            if node.op in ("get_attr", "call_module"):
                copy.target = f"{prefix}_{str(node.target).replace('.', '_')}"
                _adopt(gm, copy.target, body, str(node.target))
            env[node] = copy
    raise AssertionError("a graph without an output node")


def replace_results(graph: torch.fx.Graph, call: torch.fx.Node, results: Any) -> None:
    """Make the readers of ``call`` (a tuple read by getitem, or one value) read ``results``, and erase it."""
    if isinstance(results, torch.fx.Node):
        call.replace_all_uses_with(results)
    else:
        for user in list(call.users):
            if user.target is not operator.getitem:
                raise ValueError(f"{call.name} is used whole by {user.name}")
            position = user.args[1]
            replacement = results[position]
            if isinstance(replacement, torch.fx.Node):
                user.replace_all_uses_with(replacement)
            else:
                _replace_by_constant(user, replacement)
            graph.erase_node(user)
    graph.erase_node(call)


def _replace_by_constant(node: torch.fx.Node, constant: Any) -> None:
    for user in list(node.users):
        user.args = torch.fx.node.map_arg(user.args, lambda n: constant if n is node else n)
        user.kwargs = torch.fx.node.map_arg(user.kwargs, lambda n: constant if n is node else n)


def _adopt(gm: torch.fx.GraphModule, name: str, body: Any, path: str) -> None:
    """Make an attribute of the region's module one of the graph's: the same object, under a name of its own."""
    found: Any = body
    for part in path.split("."):
        found = getattr(found, part)
    if isinstance(found, torch.Tensor) and not isinstance(found, torch.nn.Parameter):
        gm.register_buffer(name, found, persistent=False)
    else:
        setattr(gm, name, found)
