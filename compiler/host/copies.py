"""``aten.copy``, the functional form of ``copy_``, has no derivative.

Where gradients may flow it is issued as what it does.
"""

from __future__ import annotations

import torch


def fresh_copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """A new tensor of ``target``'s shape, dtype, device and strides that holds ``source``, broadcast and converted."""
    return torch.empty_like(target).copy_(source, non_blocking=non_blocking)


def differentiable_copies(gm: torch.fx.GraphModule) -> int:
    """Reissue every ``aten.copy``, in place; returns how many."""
    calls = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy.default)
    for node in calls:
        node.target = fresh_copy
    if calls:
        gm.recompile()
    return len(calls)
