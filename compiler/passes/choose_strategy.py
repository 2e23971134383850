"""Plan a kernel for every attention and emit its source."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from attnc.codegen.emit import emit
from attnc.compiler.passes.base import Context
from attnc.compiler.planning.plan import plan_attention
from attnc.compiler.planning.target import target_of
from attnc.ir.graph import Graph


@dataclass(frozen=True)
class ChooseStrategy:
    """Each ``attn.attention`` learns (``Op.meta``) the digest of its kernel plan; equal attentions share one kernel."""

    name: ClassVar[str] = "choose-strategy"

    def run(self, graph: Graph, context: Context) -> bool:
        changed = False
        for op in graph.ops:
            if op.name != "attn.attention":
                continue
            target = target_of(op.results[0], context.target)
            plan = plan_attention(op, target)
            if plan.digest not in context.kernels:
                context.kernels[plan.digest] = (plan, emit(plan))
            op.meta["plan"], op.meta["kernel_target"] = plan.digest, target
            site = op.meta.get("site")
            if site is not None and site < len(context.sites):
                name = context.kernel_name(plan.digest)
                context.sites[site] = dataclasses.replace(context.sites[site], kernel=name)
            changed = True
        return changed
