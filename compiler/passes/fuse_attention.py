"""Replace every attention by ``attn.attention``, and say of every softmax that stays why it stays."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from attnc.compiler.fuse.find import Finder, Found
from attnc.compiler.fuse.nearest import Refusal
from attnc.compiler.fuse.reject import Reject
from attnc.compiler.fuse.rewrite import rewrite
from attnc.compiler.fuse.trial import near_misses
from attnc.compiler.passes.base import Context
from attnc.compiler.planning.describe import refused_site, site_of
from attnc.compiler.planning.target import target_of
from attnc.ir.graph import Graph
from attnc.ir.values import Op, Value


@dataclass(frozen=True)
class FuseAttention:
    """Match every softmax and SDPA call first, then rewrite: formulas are computed on a graph that doesn't change.

    Side conditions, each recorded in the site's certificate: every op between Q·Kᵀ, the softmax and P·V is understood;
    the weights have no other reader; axes are traced through every view; a fill of −inf or ≤ −1e4 is a mask.
    """

    name: ClassVar[str] = "fuse-attention"

    def run(self, graph: Graph, context: Context) -> bool:
        find = Finder(graph)
        matched: dict[int, Found] = {}
        refused: dict[int, Refusal] = {}
        for op in graph.ops:
            index = len(context.sites)
            try:
                found = _found(find, op, matched.values(), context.target)
            except Reject as reject:
                refused[index] = Refusal(op, reject)
                context.sites.append(refused_site(index, op, reject))
            else:
                if found is not None:
                    matched[index] = found
                    context.sites.append(site_of(index, found.match, found.spec, found.sides, context))
        for index, miss in near_misses(graph, refused, context.user_names).items():
            context.sites[index] = dataclasses.replace(
                context.sites[index], nearest=miss.form, blocker=miss.blocker, edit=miss.edit
            )
        replaced: dict[Value, Value] = {}
        for index, found in matched.items():
            fused = rewrite(graph, found.match, found.spec, found.sides, replaced)
            fused.meta["site"] = index
        return bool(matched)


def _found(find: Finder, op: Op, others: Iterable[Found], target: str | None) -> Found | None:
    """What ``op`` is the softmax of; None where it is none. Raises Reject for one that stays with the host."""
    found = find(op)
    if found is None:
        return None
    try:
        target_of(found.match.result, target)
    except ValueError as error:
        raise Reject("ATTNC-DEVICE", str(error), op) from error
    if any(found.match.result is other.match.result for other in others):
        raise Reject(
            "ATTNC-WEIGHTS-OP",
            "the weights are a factor on another attention's",
            op,
            edit="Multiply each softmax by a V of its own; the product of two weights is no attention.",
        )
    return found
