"""Mutated inputs: the functional graph returns their new values, the handed-over graph writes them back.

The writes stay in the graph, as ``copy_`` before the output, because Inductor turns them into stores to the input
(a write outside would copy a whole KV cache for each token). An output that is the written value, or a view of it, is
taken from the input afterwards, so that it aliases the input as it does in eager.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from attnc.compiler.frontends.torch import private
from attnc.compiler.host.metadata import carried
from attnc.compiler.host.signature import Signature, output_values

aten = torch.ops.aten


def hidden_copy_(target: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Write a module buffer unseen by autograd: batch norm saves its statistics for the backward, then updates them."""
    with torch.no_grad(), private.preserve_version(target):
        return target.copy_(value)


def put_back(gm: torch.fx.GraphModule, signature: Signature) -> int:
    """Write the mutated values to their inputs and drop them from the outputs, in place; returns how many."""
    if not signature.mutated:
        return 0
    output, values = gm.graph.output_node(), output_values(gm)
    count = len(signature.mutated)
    placeholders = {node.name: node for node in gm.graph.find_nodes(op="placeholder")}
    targets = [placeholders[name] for name in signature.mutated]
    written: dict[torch.fx.Node, torch.fx.Node] = {}
    with gm.graph.inserting_before(output):
        fresh = [_detached(gm.graph, value, target, targets) for value, target in zip(values, targets, strict=False)]
        for value, source, target in zip(values, fresh, targets, strict=False):
            write = gm.graph.call_function(_writer(target, signature), (target, source))
            write.meta = {**carried(value.meta), "val": target.meta.get("val")}
            written[value] = write
        rebase = _Rebase(gm.graph, written)
        output.args = (tuple(rebase(value) for value in values[count:]),)
    gm.recompile()
    return count


def _writer(target: torch.fx.Node, signature: Signature) -> Any:
    hide = torch.is_grad_enabled() and target.name in signature.hidden
    return hidden_copy_ if hide else aten.copy_.default


def _detached(graph: torch.fx.Graph, value: Any, target: torch.fx.Node, targets: list[torch.fx.Node]) -> torch.fx.Node:
    """``value``, copied where it is a view of another input that is written too: the writes run one after the other."""
    root = value
    while _is_view(root):
        root = root.args[0]
    if root is target or root not in targets:
        return value  # type: ignore[no-any-return]
    copy = graph.call_function(aten.clone.default, (value,))
    copy.meta = {**carried(value.meta), "val": value.meta.get("val")}
    return copy


class _Rebase:
    """Re-emits chains of views of a written value on the written input."""

    def __init__(self, graph: torch.fx.Graph, written: dict[torch.fx.Node, torch.fx.Node]) -> None:
        self.graph = graph
        self.done: dict[Any, Any] = dict(written)

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, torch.fx.Node):
            return value
        if value in self.done or not _is_view(value):
            return self.done.get(value, value)
        base = self(value.args[0])
        self.done[value] = value if base is value.args[0] else self._again(value, base)
        return self.done[value]

    def _again(self, value: torch.fx.Node, base: torch.fx.Node) -> torch.fx.Node:
        assert callable(value.target)
        copy = self.graph.call_function(value.target, (base, *value.args[1:]), value.kwargs)
        copy.meta = dict(value.meta)
        return copy


def _is_view(node: Any) -> bool:
    """Whether the node is a view of its first argument, a list of views, or an element of such a list."""
    if not isinstance(node, torch.fx.Node) or not node.args or not isinstance(node.args[0], torch.fx.Node):
        return False
    if node.target is operator.getitem:
        return _is_view(node.args[0])
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
        return False
    first = node.target._schema.arguments[0].alias_info
    returns = node.target._schema.returns
    return first is not None and not first.is_write and len(returns) == 1 and returns[0].alias_info is not None
