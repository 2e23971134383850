"""Read biases of relative position from tables of O(S) entries."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar

import sympy

from attnc.compiler.host.sizes import materialize
from attnc.compiler.lift.lifter import Lifter
from attnc.compiler.passes.base import Context
from attnc.compiler.passes.diagonal import Diagonal, NotDiagonal, Place
from attnc.compiler.planning.describe import dense_sides, note_dense_side, score_text
from attnc.compiler.planning.plan import axis_lengths
from attnc.ir import index as ix
from attnc.ir import score as sc
from attnc.ir.attention import KEY, QUERY, AttentionSpec
from attnc.ir.graph import Graph
from attnc.ir.types import Dim, size
from attnc.ir.values import Op, Value


@dataclass(frozen=True)
class Bias:
    """A side operand read at every (q, k) that provably depends on k − q alone becomes a table read at k − q + |q| − 1.

    What stays dense is noted in the report (``ATTNC-DENSE-SIDE``). Closed forms, such as ALiBi's slope · (k − q), never
    come here: the match writes them into the score.
    """

    name: ClassVar[str] = "bias"

    def run(self, graph: Graph, context: Context) -> bool:
        run = _Run(graph, context, Lifter(graph))
        changed = [run.attention(op) for op in list(graph.ops) if op.name == "attn.attention"]
        return any(changed)


@dataclass
class _Run:
    graph: Graph
    context: Context
    lifter: Lifter
    tables: dict[tuple[Dim, Dim], Diagonal] = field(default_factory=dict)

    def attention(self, op: Op) -> bool:
        """Give one attention its tables; True where it got any."""
        changed = False
        for side in dense_sides(op.attrs["spec"], _sides(op)):
            try:
                self._replace(op, side)
                changed = True
            except NotDiagonal as error:
                note_dense_side(self.context, side, op.loc, self.lifter.reason(side) or str(error))
        return changed

    def _replace(self, op: Op, side: Value) -> None:
        """Read a table in place of ``side``. Raises NotDiagonal."""
        spec: AttentionSpec = op.attrs["spec"]
        sides, lengths = _sides(op), axis_lengths(op)
        name = f"t{sides.index(side)}"
        loads = _loads(spec, name)
        place = _place(loads)
        key = (lengths[QUERY], lengths[KEY])
        tables = self.tables.setdefault(key, Diagonal(self.graph, self.lifter, op, *key))
        tables.before = op
        table, order = tables.by_key(side, place)
        entry = ix.axis(KEY) - ix.axis(QUERY) + sympy.sympify(lengths[QUERY]) - 1
        moved = {load: _moved(load, place, entry, order) for load in loads}
        spec = _with_sizes(_moved_formulas(spec, moved), entry)
        sides[sides.index(side)] = table
        sizes = tuple(materialize(self.graph, size(n), op) for n in spec.sizes)
        op.attrs["spec"] = spec
        op.set_args((*op.args[:3], tuple(sides), sizes))
        self._tell(op, spec, side)

    def _tell(self, op: Op, spec: AttentionSpec, side: Value) -> None:
        index = op.meta.get("site")
        if index is None or index >= len(self.context.sites):
            return
        site = self.context.sites[index]
        name = self.context.user_names.get(side.name, side.name)
        step = f"{name} depends on k - q alone: a table of |q| + |k| - 1 entries, read at k - q + |q| - 1"
        self.context.sites[index] = dataclasses.replace(
            site, score=score_text(spec, _sides(op), self.context), certificate=(*site.certificate, step)
        )


def _sides(op: Op) -> list[Value]:
    sides = op.args[3]
    assert isinstance(sides, tuple)
    return [side for side in sides if isinstance(side, Value)]


def _loads(spec: AttentionSpec, name: str) -> list[sc.Node]:
    """The load nodes of a side operand in every formula."""
    roots = [root for root in (spec.score, spec.visible, spec.weight, spec.sink) if root is not None]
    return list(
        dict.fromkeys(node for root in roots for node in sc.walk(root) if node.op == "load" and node.value[0] == name)
    )


def _place(loads: list[sc.Node]) -> Place:
    """Where all loads hold the plain query and key position. Raises NotDiagonal where they are read otherwise."""
    query, key = ix.axis(QUERY), ix.axis(KEY)
    places = set()
    for load in loads:
        indices = load.value[1]
        others = [i for i in indices if i not in (query, key)]
        if indices.count(query) != 1 or indices.count(key) != 1 or any(i.has(query, key) for i in others):
            raise NotDiagonal("it is read at other places than the query and key position")
        places.add(Place(indices.index(query), indices.index(key)))
    if len(places) != 1:
        raise NotDiagonal("it is read in two ways")
    return places.pop()


def _moved(load: sc.Node, place: Place, entry: sympy.Expr, order: tuple[int, ...]) -> sc.Node:
    """The load of a table whose dimensions are those of the side operand in another order."""
    name, indices = load.value
    at = [sympy.Integer(0) if d == place.query else entry if d == place.key else i for d, i in enumerate(indices)]
    return sc.load(name, tuple(at[d] for d in order), load.dtype)


def _moved_formulas(spec: AttentionSpec, moved: dict[sc.Node, sc.Node]) -> AttentionSpec:
    """The spec with loads replaced in every formula."""
    return dataclasses.replace(
        spec,
        score=sc.substitute(spec.score, moved),
        visible=sc.substitute(spec.visible, moved),
        weight=None if spec.weight is None else sc.substitute(spec.weight, moved),
        sink=None if spec.sink is None else sc.substitute(spec.sink, moved),
    )


def _with_sizes(spec: AttentionSpec, entry: sympy.Expr) -> AttentionSpec:
    return dataclasses.replace(spec, sizes=tuple(sorted({*spec.sizes, *ix.sizes_of(entry)})))
