"""Replace every attention by ``attn.attention``, and say of every softmax that stays why it stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnc.compiler.fuse.forms import SOFTMAXES, SoftmaxForm, named_softmax
from attnc.compiler.fuse.match import Match
from attnc.compiler.fuse.reach import Reach
from attnc.compiler.fuse.reject import Reject
from attnc.compiler.fuse.rewrite import rewrite, specify
from attnc.compiler.fuse.sdpa import SDPA, match_sdpa
from attnc.compiler.fuse.site import match_softmax
from attnc.compiler.fuse.written_out import EXP, written_softmax
from attnc.compiler.lift.lifter import Lifter
from attnc.compiler.passes.base import Context
from attnc.compiler.planning.describe import refused_site, site_of
from attnc.compiler.planning.plan import formulas
from attnc.ir.attention import AttentionSpec
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
        lifter, reaches = Lifter(graph), Reach()
        values = _values(graph)
        matched: list[tuple[int, Match, AttentionSpec, list[Value]]] = []
        for op in graph.ops:
            index = len(context.sites)
            try:
                found = _match(graph, op, lifter, values, reaches)
                if found is None:
                    continue
                match, spec, sides = found
                if any(match.result is other.result for _, other, _, _ in matched):
                    raise Reject("ATTNC-WEIGHTS-OP", "the weights are a factor on another attention's", op)
            except Reject as reject:
                context.sites.append(refused_site(index, op, reject))
            else:
                matched.append((index, match, spec, sides))
                context.sites.append(site_of(index, match, spec, sides, context))
        replaced: dict[Value, Value] = {}
        for index, match, spec, sides in matched:
            fused = rewrite(graph, match, spec, sides, replaced)
            fused.meta["site"] = index
        return bool(matched)


def _match(
    graph: Graph, op: Op, lifter: Lifter, values: dict[str, Value], reaches: Reach
) -> tuple[Match, AttentionSpec, list[Value]] | None:
    """What ``op`` is the softmax of; None where it is none. Raises Reject for one that stays with the host."""
    if op.name == SDPA:
        match = match_sdpa(op, lifter, values)
    elif (form := _form(graph, op, reaches)) is not None:
        match = match_softmax(graph, form, lifter, values, reaches)
    else:
        return None
    spec, sides = specify(graph, match)
    try:
        formulas(spec, match.names_to_lengths())
    except ValueError as error:
        raise Reject("ATTNC-PLAN", str(error), op) from error
    return match, spec, sides


def _form(graph: Graph, op: Op, reaches: Reach) -> SoftmaxForm | None:
    if op.name in SOFTMAXES:
        return named_softmax(graph, op)
    return written_softmax(graph, op, reaches) if op.name == EXP else None


def _values(graph: Graph) -> dict[str, Value]:
    produced = (value for op in graph.ops for value in op.results)
    return {value.name: value for value in (*graph.inputs, *produced)}
