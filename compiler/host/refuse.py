"""What capture would get wrong: constructs whose meaning functional export loses, found before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from attnc.compiler.frontends.torch import private
from attnc.compiler.frontends.torch.location import location
from attnc.compiler.host import notes
from attnc.compiler.host.notes import Note
from attnc.compiler.host.writes import hidden_write

CARRIED = frozenset(
    """cond while_loop map map_impl scan associative_scan flex_attention triton_kernel_wrapper_mutation
    triton_kernel_wrapper_functional wrap_with_autocast wrap_with_set_grad_enabled tag_activation_checkpoint""".split()
)
"""Higher-order ops that export carries whole, or that are inlined before it."""

PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, private.FakeTensor)


def cannot_take(gm: torch.fx.GraphModule, args: Sequence[Any]) -> Note | None:
    """Why this Dynamo graph must go to the host as it is; None where it can be captured."""
    for arg in args:
        if isinstance(arg, torch.Tensor) and (type(arg) not in PLAIN or private.is_traceable_wrapper_subclass(arg)):
            return Note(notes.TENSOR_SUBCLASS, f"an input is a {type(arg).__name__}, not a plain tensor")
    for node in _nodes(gm):
        if (reason := _loses(node, gm)) is not None:
            return Note(reason[0], reason[1], location(node.meta))
    if (write := hidden_write(gm)) is not None:
        text = "a tensor that needs gradients is written where autograd does not look (no_grad, detach or .data)"
        return Note(notes.HIDDEN_WRITE, text, location(write.meta))
    return None


def _nodes(gm: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """Every call of the graph and of the bodies of its higher-order ops."""
    for module in gm.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from (node for node in module.graph.nodes if node.op == "call_function")


def _loses(node: torch.fx.Node, gm: torch.fx.GraphModule) -> tuple[str, str] | None:
    if private.is_functorch_call(node.target):
        return notes.VMAP, "a grad or jvp transform, or a vmap that can't be written out, runs inside the graph"
    if not isinstance(node.target, torch._ops.HigherOrderOperator):
        return None
    name = private.hop_name(node.target)
    if name == "autograd_function_apply":
        lost = (notes.AUTOGRAD_FUNCTION, "an autograd.Function has a backward of its own, which export would drop")
        return lost if _may_need_grad(gm) else None
    if name == "register_hook":
        return notes.TENSOR_HOOK, "a gradient hook is registered on an intermediate tensor"
    if name == "tag_activation_checkpoint" and _has_policy(node) and _may_need_grad(gm):
        return notes.CHECKPOINT_POLICY, "checkpoint was given a context_fn, which decides what to recompute"
    if name not in CARRIED:
        return notes.HIGHER_ORDER_OP, f"the higher-order op {name} isn't known to survive export"
    return None


def _may_need_grad(gm: torch.fx.GraphModule) -> bool:
    """Whether gradients can be recorded: grad mode is on, or the graph itself switches it on."""
    if torch.is_grad_enabled():
        return True
    return any(node.target is private.set_grad_enabled and node.args[0] is not False for node in gm.graph.nodes)


def _has_policy(node: torch.fx.Node) -> bool:
    owner, body = node.graph.owning_module, node.args[0]
    if owner is None or not isinstance(body, torch.fx.Node):
        return False
    module = owner.get_submodule(str(body.target))
    return isinstance(module, torch.fx.GraphModule) and "_checkpoint_context_fn" in module.meta
