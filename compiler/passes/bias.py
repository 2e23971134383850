"""Read biases of relative position from tables of O(S) entries."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar

import sympy

from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.host.sizes import materialize
from attnc.compiler.lift.content import Array
from attnc.compiler.lift.lifter import Lifter
from attnc.compiler.passes.base import Context
from attnc.compiler.passes.contents import Contents
from attnc.compiler.passes.diagonal import Diagonal
from attnc.compiler.passes.issue import Issue
from attnc.compiler.passes.place import NotRelative
from attnc.compiler.passes.reads import Read, loads, reads, reads_pairs, substituted
from attnc.compiler.passes.relation import Difference, Relation, entries, grid_of
from attnc.compiler.planning.describe import dense_sides, note_dense_side, score_text
from attnc.compiler.planning.plan import axis_lengths
from attnc.ir import index as ix
from attnc.ir.attention import KEY, AttentionSpec
from attnc.ir.graph import Graph
from attnc.ir.types import size
from attnc.ir.values import Op, Value


@dataclass(frozen=True)
class Bias:
    """A side operand read at every (q, k) that provably depends on their relative position becomes a table.

    The relative position is k − q, or the offset of two cells of a grid; see
    :mod:`~attnc.compiler.passes.relation`. What stays dense is noted in the report (``ATTNC-DENSE-SIDE``). Closed
    forms, such as ALiBi's slope · (k − q), never come here: the match writes them into the score.
    """

    name: ClassVar[str] = "bias"

    def run(self, graph: Graph, context: Context) -> bool:
        attentions = [op for op in graph.ops if op.name == "attn.attention"]
        if not attentions:
            return False
        run = _Run(context, Issue(graph, attentions[0]), Lifter(graph), Contents(graph))
        changed = [run.attention(op) for op in attentions]
        return any(changed)


@dataclass
class _Run:
    context: Context
    issue: Issue
    lifter: Lifter
    contents: Contents
    tables: dict[Relation, Diagonal] = field(default_factory=dict)

    def attention(self, op: Op) -> bool:
        """Give one attention its tables; True where it got any."""
        self.issue.before = op
        changed = False
        for side in _dense(op):
            try:
                self._replace(op, side)
                changed = True
            except NotRelative as error:
                note_dense_side(self.context, side, op.loc, self._reason(side, error))
        return changed

    def _reason(self, side: Value, error: NotRelative) -> str:
        """Why a bias is no table, or a mask no formula."""
        return str(error) if tensor_type(side).dtype.is_float else self.lifter.reason(side) or str(error)

    def _replace(self, op: Op, side: Value) -> None:
        """Read a table in place of ``side``. Raises NotRelative."""
        spec: AttentionSpec = op.attrs["spec"]
        sides = _sides(op)
        number = sides.index(side)
        found = reads(loads(spec, f"t{number}"), tensor_type(side).shape, axis_lengths(op)[KEY])
        tables, table, order = self._table(side, found)
        entry = {read: _entry(tables, read, sides) for read in found}
        spec = substituted(spec, {read.load: read.of_table(entry[read], order) for read in found})
        named = {name for expr in entry.values() for name in ix.sizes_of(expr)}
        spec = dataclasses.replace(spec, sizes=tuple(sorted({*spec.sizes, *named})))
        sides[number] = table
        sizes = tuple(materialize(self.issue.graph, size(n), op) for n in spec.sizes)
        op.attrs["spec"] = spec
        op.set_args((*op.args[:3], tuple(sides), sizes))
        self._tell(op, spec, side, tables.relation)

    def _table(self, side: Value, found: list[Read]) -> tuple[Diagonal, Value, tuple[int, ...]]:
        """The table of a side operand, by differences where that works, else by the grid its indices follow."""
        read = found[0]
        tables = self._diagonal(Difference(read.rows, read.keys))
        try:
            return tables, *tables.by_key(side, read.place)
        except NotRelative as error:
            if error.content is None:
                raise
            grid = self._grid(error.content)
            if grid is None:
                raise NotRelative(f"{error}, nor of the offset of two cells of a grid") from error
        tables = self._diagonal(grid)
        return tables, *tables.by_key(side, read.place)

    def _grid(self, content: Array) -> Relation | None:
        """A grid already in use where it fits, so that layers share its vectors."""
        return next((r for r in self.tables if entries(r, content) is not None), None) or grid_of(content)

    def _diagonal(self, relation: Relation) -> Diagonal:
        return self.tables.setdefault(relation, Diagonal(self.issue, self.lifter, self.contents, relation))

    def _tell(self, op: Op, spec: AttentionSpec, side: Value, relation: Relation) -> None:
        index = op.meta.get("site")
        if index is None or index >= len(self.context.sites):
            return
        site = self.context.sites[index]
        name = self.context.user_names.get(side.name, side.name)
        step = f"{name} depends on {relation.meaning} alone: a table of {relation.length} entries"
        self.context.sites[index] = dataclasses.replace(
            site, score=score_text(spec, _sides(op), self.context), certificate=(*site.certificate, step)
        )


def _sides(op: Op) -> list[Value]:
    sides = op.args[3]
    assert isinstance(sides, tuple)
    return [side for side in sides if isinstance(side, Value)]


def _dense(op: Op) -> list[Value]:
    """The side operands read for every query and key, in two dimensions or in one that runs over pairs."""
    spec, sides = op.attrs["spec"], _sides(op)
    known = dense_sides(spec, sides)
    return [s for i, s in enumerate(sides) if s in known or any(map(reads_pairs, loads(spec, f"t{i}")))]


def _entry(tables: Diagonal, read: Read, sides: list[Value]) -> sympy.Expr:
    """The number of the pair that is read; vectors it is computed from are added to the side operands."""
    if isinstance(tables.relation, Difference):
        return read.column - read.row + sympy.sympify(read.rows) - 1
    entry = sympy.Integer(0)
    for vector, at in zip(tables.vectors(), (read.row, read.column), strict=True):
        if vector not in sides:
            sides.append(vector)
        entry += ix.load(f"t{sides.index(vector)}", at)
    return entry
