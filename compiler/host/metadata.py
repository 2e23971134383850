"""The FX metadata that still holds for a node made in place of, or on behalf of, another."""

from __future__ import annotations

from typing import Any

CARRIED = ("stack_trace", "nn_module_stack", "recompute", "ac_graph_id", "seq_nr", "from_node", "eager_input_vals")
"""Where the node comes from, and whether the backward should recompute it."""


def carried(meta: dict[str, Any]) -> dict[str, Any]:
    """The entries of ``meta`` a new node takes over."""
    return {key: value for key, value in meta.items() if key in CARRIED}
