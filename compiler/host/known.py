"""State whose content is read when compiling: masks, index tables and tables of cosines that a module holds.

Dynamo passes buffers as inputs, whose numbers a graph can't rely on. Here those that may hold a mask, positions or a
table of waves become constants of the captured graph. Guards make Dynamo compile again when such a tensor is written
(its version moves, the counter autograd relies on too) or another takes its place. State that did change between two
compiles of a frame is an input ever after.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attnc.compiler.frontends.torch import private
from attnc.compiler.host.signature import Signature

MOST_ELEMENTS = 1 << 22
"""Larger tensors stay inputs: 2048 positions squared."""
FEWEST_ELEMENTS = 4
"""Smaller ones are counters."""
FEWEST_ROWS = 3

MOST_INSTANCES = 2
"""Modules of one class whose state is read: a compile each. Of the next on, the state is an input for all."""

_Known = tuple["weakref.ref[Tensor]", int]
_seen: dict[tuple[int, str], list[_Known] | None] = {}
"""(frame, source) → tensors and versions they were read at; None for state that has changed."""


def hold_known(
    gm: torch.fx.GraphModule, exported: torch.fx.GraphModule, args: Sequence[Any], signature: Signature
) -> int:
    """Make constants of the known state among the inputs of ``exported``, in place; returns how many.

    ``args`` are the example inputs of the Dynamo graph ``gm``.
    """
    place = private.compile_place()
    if place is None:
        return 0
    frame, compiles = place
    if not compiles:
        _forget(frame)
    inputs = [node for node in exported.graph.find_nodes(op="placeholder") if node.name not in signature.state]
    count = 0
    for node, source, arg in zip(inputs, gm.graph.find_nodes(op="placeholder"), args, strict=True):
        if node.name in signature.mutated or not _may_matter(source, arg) or not _is_steady(frame, source, arg):
            continue
        if private.guard_content(source):
            _hold(exported, node, arg, private.placeholder_source(source))
            count += 1
    if count:
        exported.recompile()
    return count


def _hold(exported: torch.fx.GraphModule, node: torch.fx.Node, tensor: Tensor, label: str) -> None:
    name = _attribute(exported, label)
    if isinstance(tensor, torch.nn.Parameter):
        exported.register_parameter(name, tensor)
    else:
        exported.register_buffer(name, tensor, persistent=False)
    first = next(node for node in exported.graph.nodes if node.op != "placeholder")
    with exported.graph.inserting_before(first):
        attribute = exported.graph.get_attr(name)
    attribute.meta = dict(node.meta)
    node.replace_all_uses_with(attribute, delete_user_cb=lambda user: user.op != "output")


def _attribute(exported: torch.fx.GraphModule, label: str) -> str:
    """The user's name of the state, with a number where another has it already."""
    leaf = re.sub(r"\W+", "_", label.rsplit("[", 1)[-1]).strip("_")
    name, count = leaf, 0
    while hasattr(exported, name):
        count += 1
        name = f"{leaf}_{count}"
    return name


def _may_matter(source: torch.fx.Node, arg: Any) -> bool:
    """Whether an input is state of a module, held still, that may be positions, a mask or a table of waves."""
    label = private.placeholder_source(source)
    buffer, parameter = "._buffers[" in label, "._parameters[" in label
    if not (buffer or parameter) or type(arg) not in (Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return False
    if arg.requires_grad or arg.is_inference() or arg.device.type != "cpu" or arg.layout != torch.strided:
        return False
    if not FEWEST_ELEMENTS <= arg.numel() <= MOST_ELEMENTS:
        return False
    if not (arg.is_floating_point() or arg.is_complex()):
        return True
    return arg.ndim > 1 and (_holds_waves(arg) or (buffer and _has_two_values(arg)))


def holds_content(tensor: Tensor) -> bool:
    """Whether floats may be a mask, or a table of cosines and sines, whose content passes would read."""
    if tensor.ndim < 2 or tensor.numel() > MOST_ELEMENTS:
        return False
    return _holds_waves(tensor) or _has_two_values(tensor)


def _has_two_values(tensor: Tensor) -> bool:
    if tensor.is_complex():
        return False
    low, high = tensor.aminmax()
    return bool(((tensor == low) | (tensor == high)).all())


def _holds_waves(tensor: Tensor) -> bool:
    """Whether the rows may be cosines and sines of 0, f, 2f, …"""
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    first = tensor[0]
    starts = bool(((first == 0) | (first == 1)).all())
    return starts and tensor.shape[0] >= FEWEST_ROWS and bool((tensor.abs() <= 1).all())


def _forget(frame: int) -> None:
    """A frame that is compiled for the first time: after a reset Dynamo gives the numbers of frames again."""
    for key in [key for key in _seen if key[0] == frame]:
        del _seen[key]


def _is_steady(frame: int, source: torch.fx.Node, tensor: Tensor) -> bool:
    """Whether all that earlier compiles of the frame have read is unchanged, and this is one more module at most."""
    key = (frame, private.placeholder_source(source))
    seen = _seen.setdefault(key, [])
    if seen is None or not all(_is_as_read(*known) for known in seen):
        _seen[key] = None
        return False
    if all(held() is not tensor for held, _ in seen):
        seen.append((weakref.ref(tensor), tensor._version))
    if len(seen) > MOST_INSTANCES:
        _seen[key] = None
    return len(seen) <= MOST_INSTANCES


def _is_as_read(held: weakref.ref[Tensor], version: int) -> bool:
    tensor = held()
    return tensor is not None and tensor._version == version
