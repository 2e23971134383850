"""Writes that autograd does not see, to tensors that need gradients.

``with torch.no_grad(): w.sub_(x)`` leaves ``w`` the leaf it was; ``y.detach().add_(1)`` leaves ``y`` differentiable. In
a functional graph what comes after reads the new value, which was computed without gradients: they would be lost
without a sign. Such graphs go to the host.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch

from attnc.compiler.frontends.torch import private

_IN_PLACE = "iadd isub imul ifloordiv itruediv imod ipow iand ior ixor ilshift irshift imatmul setitem".split()
_OPERATORS = frozenset(getattr(operator, name) for name in _IN_PLACE)


def hidden_write(gm: torch.fx.GraphModule) -> torch.fx.Node | None:
    """The first write in a Dynamo graph that gradients would get lost in; None where there is none."""
    grad = torch.is_grad_enabled()
    needing = {_storage(v) for node in gm.graph.nodes for v in _tensors(node) if v.requires_grad}
    node: torch.fx.Node
    for node in gm.graph.nodes:
        if node.target is private.set_grad_enabled:
            grad = bool(node.args[0])
        elif any(_storage(v) in needing and not (grad and v.requires_grad) for v in _written(node)):
            return node
    return None


def _written(node: torch.fx.Node) -> Iterator[torch.Tensor]:
    """Example values of the tensors a call writes."""
    if node.op not in ("call_method", "call_function"):
        return
    if isinstance(out := node.kwargs.get("out"), torch.fx.Node):
        yield from _tensors(out)
    name = str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "")
    in_place = (name.endswith("_") and not name.endswith("__")) or name.strip("_") in _IN_PLACE
    if (in_place or node.target in _OPERATORS or node.kwargs.get("inplace")) and node.all_input_nodes:
        yield from _tensors(node.all_input_nodes[0])


def _tensors(node: torch.fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("example_value")
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _storage(value: torch.Tensor) -> Any:
    return value.untyped_storage()._cdata
