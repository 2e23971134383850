"""Dropout that drops nothing is removed before export.

Under export before dispatch the result of a dropout call has frozen storage, so ``y = dropout(x, training=False);
y[mask] = 0`` fails to trace. Without training, or with p = 0, eager returns the input itself: so does the
rewritten graph.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

DROPOUTS = frozenset(
    (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout, torch.dropout)
)


def drop_eval_dropout(gm: torch.fx.GraphModule) -> int:
    """Replace each inert dropout call by its input, in place; returns how many."""
    inert = [node for node in gm.graph.nodes if node.target in DROPOUTS and _is_inert(node)]
    for node in inert:
        node.replace_all_uses_with(_argument(node, 0, "input", None))
        gm.graph.erase_node(node)
    if inert:
        gm.recompile()
    return len(inert)


def _is_inert(node: torch.fx.Node) -> bool:
    position, name = (2, "train") if node.target is torch.dropout else (2, "training")
    default = node.target not in (F.alpha_dropout, F.feature_alpha_dropout)
    training = _argument(node, position, name, default)
    p = _argument(node, 1, "p", 0.5)
    return training is False or (isinstance(p, int | float) and p == 0)


def _argument(node: torch.fx.Node, position: int, name: str, default: Any) -> Any:
    return node.args[position] if position < len(node.args) else node.kwargs.get(name, default)
