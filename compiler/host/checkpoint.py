"""torch.utils.checkpoint: its body is copied into the graph, with the tags AOTAutograd's partitioner obeys.

Export can't trace the higher-order op. ``meta["recompute"]`` and ``meta["ac_graph_id"]`` survive export, and make the
min-cut partitioner recompute the region in the backward, which is what the user asked for.
"""

from __future__ import annotations

import torch
from torch.utils.checkpoint import CheckpointPolicy

from attnc.compiler.frontends.torch import private
from attnc.compiler.host.regions import copy_body, replace_results


def inline_checkpoint(gm: torch.fx.GraphModule) -> int:
    """Inline every checkpointed region, nested ones too, in place; returns how many."""
    count = 0
    while calls := gm.graph.find_nodes(op="call_function", target=private.tag_activation_checkpoint):
        count += 1
        _inline(gm, calls[0], count)
    if count:
        gm.recompile()
    return count


def _inline(gm: torch.fx.GraphModule, call: torch.fx.Node, region: int) -> None:
    body_node = call.args[0]
    assert isinstance(body_node, torch.fx.Node)
    body = gm.get_submodule(str(body_node.target))
    tags = {
        "recompute": call.meta.get("recompute", CheckpointPolicy.PREFER_RECOMPUTE),
        "ac_graph_id": call.meta.get("ac_graph_id", region),
    }
    results = copy_body(gm, body, call, list(call.args[1:]), tags, f"checkpoint_{region}")
    replace_results(gm.graph, call, results)
    if not body_node.users:
        gm.graph.erase_node(body_node)
