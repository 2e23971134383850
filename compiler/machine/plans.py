"""Attentions of a model, or of the built-in variants, that kernels are compiled for ahead of time."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from attnc.compiler import api
from attnc.compiler.api import Program
from attnc.compiler.machine.variants import Model, Variant
from attnc.ir.values import Op


@dataclass(frozen=True)
class Attention:
    """An ``attn.attention`` op and what its kernel is called."""

    name: str
    op: Op


def variant_attention(variant: Variant, target: str, head_dim: int, dtype: torch.dtype) -> Attention:
    """The only attention of a variant, for any batch and length. Raises ValueError where it isn't fused."""
    args = variant.inputs(head_dim, dtype)
    program = api.compile(
        Model(variant), args, dynamic_shapes=variant.dims(), name=variant.name, options={"target": target}
    )
    found = attentions(program)
    if len(found) != 1:
        left = [f"{site.code} {site.reason}" for site in program.report.sites if not site.fused]
        raise ValueError(f"variant {variant.name} has {len(found)} attentions: {'; '.join(left)}")
    return Attention(variant.name, found[0].op)


def attentions(program: Program) -> list[Attention]:
    """One attention for each kernel of a compiled model, in the order of the graph."""
    by_plan = {op.meta["plan"]: op for op in reversed(program.graph.ops) if op.name == "attn.attention"}
    names = program.kernel_names
    return [Attention(names[plan], by_plan[plan]) for plan in names if plan in by_plan]
