"""The two hosts: Inductor, and ATen run node by node.

``compile_fx`` runs the whole of AOTAutograd on the graph again, on purpose: it makes the joint graph for training,
restores aliasing, and applies Inductor's own passes and caches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from attnc.compiler.frontends.torch import private

Host = Literal["inductor", "aten"]


def run_host(gm: torch.fx.GraphModule, args: Sequence[Any], host: Host) -> Callable[..., Any]:
    """The callable of a graph. Raises ValueError for an unknown host, and whatever Inductor raises."""
    if host == "aten":
        return gm.forward
    if host == "inductor":
        return private.inductor(gm, args)
    raise ValueError(f"unknown host {host!r}: choose inductor or aten")
