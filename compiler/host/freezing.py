"""State as attributes: placeholders that stand for parameters and buffers are bound to the live tensors.

Under Inductor's freezing option Dynamo keeps parameters as attributes, export lifts them to placeholders, and Inductor
wants attributes again (it packs them). The same step closes a ``torch.export`` program over its state.
"""

from __future__ import annotations

from itertools import count

import torch

from attnc.compiler.host.signature import Signature


def unlift(gm: torch.fx.GraphModule, signature: Signature) -> int:
    """Bind the state placeholders to attributes of the module, in place; returns how many."""
    bound = [node for node in gm.graph.find_nodes(op="placeholder") if node.name in signature.state]
    for node in bound:
        name, tensor = _free_name(gm, node.name), signature.state[node.name]
        if isinstance(tensor, torch.nn.Parameter):
            gm.register_parameter(name, tensor)
        else:
            gm.register_buffer(name, tensor)
        with gm.graph.inserting_before(node):
            attribute = gm.graph.get_attr(name)
        attribute.meta = dict(node.meta)
        node.replace_all_uses_with(attribute)
        gm.graph.erase_node(node)
    if bound:
        gm.recompile()
    return len(bound)


def _free_name(gm: torch.fx.GraphModule, wanted: str) -> str:
    """An attribute the module doesn't have: ``wanted``, else with a number behind it."""
    names = (wanted if i == 0 else f"{wanted}_{i}" for i in count())
    return next(name for name in names if not hasattr(gm, name))
