"""torch.vmap, written out: the batched operators it stands for take its place before capture.

Dynamo records vmap as calls that open a level, mark tensors as batched, unmark them and close the level; capture before
dispatch can't see through them. Run once more below dispatch they leave plain operators with one dimension more, which
is what the region computes. Transformers builds attention masks this way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from attnc.compiler.frontends.torch import private
from attnc.compiler.host.regions import copy_body


class Unwritable(Exception):
    """A region that can't be written out."""


def write_out_vmaps(gm: torch.fx.GraphModule) -> int:
    """Write out every vmap of the graph, in place; returns how many. What can't be stays, and is refused later."""
    count = 0
    for region in list(_regions(gm.graph)):
        try:
            _write_out(gm, region, f"vmap_{count}")
            count += 1
        except Unwritable:
            continue
    if count:
        gm.recompile()
    return count


@dataclass
class _Region:
    """The nodes from the call that opens the outermost level to the one that closes it."""

    nodes: list[torch.fx.Node]

    @property
    def inputs(self) -> list[torch.fx.Node]:
        inside = set(self.nodes)
        return list(dict.fromkeys(x for node in self.nodes for x in node.all_input_nodes if x not in inside))

    @property
    def results(self) -> list[torch.fx.Node]:
        inside = set(self.nodes)
        return [node for node in self.nodes if any(user not in inside for user in node.users)]


def _regions(graph: torch.fx.Graph) -> Iterator[_Region]:
    """The outermost regions. Calls of grad or jvp belong to none, and to no vmap around them."""
    depth, nodes = 0, list[torch.fx.Node]()
    for node in graph.nodes:
        step = private.vmap_step(node.target) if node.op == "call_function" else 0
        depth += step
        if depth or step:
            nodes.append(node)
        if nodes and not depth:
            yield _Region(nodes)
            nodes = []


def _write_out(gm: torch.fx.GraphModule, region: _Region, prefix: str) -> None:
    inputs, results = region.inputs, region.results
    body = _plain(gm, region, inputs, results)
    first = region.nodes[0]
    tags = {k: v for k, v in _located(region).meta.items() if k in ("stack_trace", "nn_module_stack")}
    copies = copy_body(gm, body, first, list(inputs), tags, prefix)
    for node, copy in zip(results, copies, strict=True):
        node.replace_all_uses_with(copy, delete_user_cb=lambda user: user not in region.nodes)
    for node in reversed(region.nodes):
        gm.graph.erase_node(node)


def _plain(
    gm: torch.fx.GraphModule, region: _Region, inputs: list[torch.fx.Node], results: list[torch.fx.Node]
) -> torch.fx.GraphModule:
    """The region's batched operators over its inputs. Raises Unwritable."""
    _check(region, inputs, results)
    graph = torch.fx.Graph()
    known = {node: graph.placeholder(node.name) for node in inputs}
    for node in region.nodes:
        known[node] = graph.node_copy(node, lambda n: known[n])
    graph.output([known[node] for node in results])
    values = [node.meta["example_value"] for node in inputs]
    try:
        with private.levels_closed(), private.real_numbers_allowed(values):
            traced = make_fx(torch.fx.GraphModule(gm, graph))(*values)
    except Exception as error:
        raise Unwritable(str(error)) from error
    if any(_writes(node) for node in traced.graph.nodes):
        raise Unwritable("it writes to a tensor")
    return traced


def _check(region: _Region, inputs: list[torch.fx.Node], results: list[torch.fx.Node]) -> None:
    """Raises Unwritable where another transform, randomness or a gradient is involved, or an input isn't known."""
    for node in region.nodes:
        call = node.op == "call_function"
        if call and private.is_functorch_call(node.target) and not private.is_vmap_call(node.target):
            raise Unwritable("grad or jvp inside")
        if call and isinstance(node.target, torch._ops.HigherOrderOperator):
            raise Unwritable("a higher-order op inside")
        if call and private.vmap_step(node.target) > 0 and node.args[1:] != ("error",):
            raise Unwritable("random numbers inside")
        if node.op not in ("call_function", "call_method"):
            raise Unwritable("a module or an attribute inside")
    if not all("example_value" in node.meta for node in inputs):
        raise Unwritable("an input of unknown type")
    if torch.is_grad_enabled() and any(_needs_grad(node.meta.get("example_value")) for node in (*inputs, *results)):
        raise Unwritable("a gradient flows through it")


def _needs_grad(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _writes(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _located(region: _Region) -> torch.fx.Node:
    """The first node of which the source line is known, else the first."""
    return next((node for node in region.nodes if node.meta.get("stack_trace")), region.nodes[0])
