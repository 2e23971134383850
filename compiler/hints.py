"""What a capture knows beside its graph: typical values of sizes, the user's names of inputs. For costs, reports."""

from __future__ import annotations

from typing import Any

import sympy
import torch

from attnc.compiler.frontends.torch.importer import SOURCE
from attnc.ir.graph import Graph
from attnc.ir.types import ScalarType, TensorType


def size_hints(graph: Graph) -> dict[str, int]:
    """Named size → its value in the example inputs, where an input shows it."""
    hints: dict[str, int] = {}
    for value in graph.inputs:
        example = graph.meta.get("inputs", {}).get(value.name, {}).get("fx", {}).get("val")
        if isinstance(value.type, TensorType) and isinstance(example, torch.Tensor):
            for dim, extent in zip(value.type.shape, example.shape, strict=True):
                _learn(hints, dim, extent)
        elif isinstance(value.type, ScalarType):
            _learn(hints, value.type.expr, example)
    return hints


def user_names(graph: Graph) -> dict[str, str]:
    """Graph input → the name its user knows it by (``attention_mask``)."""
    known = graph.meta.get("inputs", {})
    return {name: str(meta["fx"][SOURCE]) for name, meta in known.items() if SOURCE in meta.get("fx", {})}


def _learn(hints: dict[str, int], dim: Any, extent: Any) -> None:
    known = extent.node.hint if isinstance(extent, torch.SymInt) else extent
    if isinstance(dim, sympy.Symbol) and isinstance(known, int):
        hints.setdefault(dim.name, known)
