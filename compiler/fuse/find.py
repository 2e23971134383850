"""Which attention an op is the softmax of: every form of a softmax, and SDPA calls."""

from __future__ import annotations

from dataclasses import dataclass

from attnc.compiler.fuse.forms import SOFTMAXES, SoftmaxForm, named_softmax
from attnc.compiler.fuse.match import Match
from attnc.compiler.fuse.reach import Reach
from attnc.compiler.fuse.reject import Reject
from attnc.compiler.fuse.rewrite import specify
from attnc.compiler.fuse.sdpa import SDPA, match_sdpa
from attnc.compiler.fuse.site import match_softmax
from attnc.compiler.fuse.written_out import EXP, written_softmax
from attnc.compiler.lift.lifter import Lifter
from attnc.compiler.planning.plan import formulas
from attnc.ir.attention import AttentionSpec
from attnc.ir.graph import Graph
from attnc.ir.values import Op, Value


@dataclass(frozen=True)
class Found:
    """A match, what it computes, and the tensors its formulas read."""

    match: Match
    spec: AttentionSpec
    sides: list[Value]


class Finder:
    """Finds attentions in a graph that doesn't change meanwhile: formulas and their answers are remembered."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._lifter, self._reaches = Lifter(graph), Reach()
        produced = (value for op in graph.ops for value in op.results)
        self._values = {value.name: value for value in (*graph.inputs, *produced)}

    def __call__(self, op: Op) -> Found | None:
        """The attention ``op`` is the softmax of; None where it is none. Raises Reject for one left to the host."""
        if op.name == SDPA:
            match = match_sdpa(op, self._lifter, self._values)
        elif (form := self._form(op)) is not None:
            match = match_softmax(self.graph, form, self._lifter, self._values, self._reaches)
        else:
            return None
        try:
            return self._planned(match)
        except Reject as reject:
            reject.match = match
            raise

    def _form(self, op: Op) -> SoftmaxForm | None:
        if op.name in SOFTMAXES:
            return named_softmax(self.graph, op)
        return written_softmax(self.graph, op, self._reaches) if op.name == EXP else None

    def _planned(self, match: Match) -> Found:
        spec, sides = specify(self.graph, match)
        try:
            formulas(spec, match.names_to_lengths())
        except ValueError as error:
            raise Reject("ATTNC-PLAN", str(error), match.root) from error
        return Found(match, spec, sides)
