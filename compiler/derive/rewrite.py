"""The two graphs of a derived program: what is computed once, and one step over the new tokens of a ragged batch.

``B`` becomes 1 and ``S`` the number T of new tokens. A function of position is computed once, up to the greatest
length, and read at the given positions; constants are folded likewise. Keys and values of every attention go to pages,
and the attention reads them through a block table. Only the wanted rows go on to the logits.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnc.compiler.derive.absorb import latent
from attnc.compiler.derive.analysis import Analysis
from attnc.compiler.derive.copying import Apart, Copy
from attnc.compiler.derive.emit import Emit
from attnc.compiler.derive.known import Kind, Known, Role
from attnc.compiler.derive.paging import Paging
from attnc.compiler.derive.parts import Part
from attnc.compiler.derive.refusal import ATTENTION, NotDerivable
from attnc.compiler.derive.rows import selection_point
from attnc.compiler.derive.site import SiteFacts
from attnc.compiler.derive.streams import NEW, WANTED, Batch, PagedSite, Pages
from attnc.compiler.fuse.layout import tensor_type
from attnc.ir.graph import Graph, SizeInfo
from attnc.ir.rewriter import erase_dead
from attnc.ir.types import Dim, DType, ScalarType, TensorType
from attnc.ir.values import Op, Value


@dataclass(frozen=True)
class Derived:
    """A derived program as graphs.

    ``once`` takes the weights and ids [1, max_length] (their content doesn't matter) and gives what ``step`` takes
    under the names ``folded``, in this order.
    """

    once: Graph
    step: Graph
    encoder: Graph
    """What is computed once for a request, from the encoder's inputs: keys and values [E, heads, features] of each
    attention that reads the encoder, in order. Empty without one."""
    folded: tuple[str, ...]
    sites: tuple[PagedSite, ...]
    max_length: int
    ramps: tuple[str, ...] = ()
    """Folded tables that must rise by one amount along their last dimension."""


def derive(analysis: Analysis, max_length: int, pages: Pages) -> Derived:
    """The graphs of the program. Raises NotDerivable where a table of positions has no axis of its own."""
    return _Rewrite(analysis, max_length, pages).run()


class _Rewrite:
    def __init__(self, analysis: Analysis, max_length: int, pages: Pages) -> None:
        self.analysis = analysis
        self.max_length = max_length
        self.pages = pages
        axes = analysis.axes
        name = analysis.graph.name
        self.once = Apart(Copy(Graph(f"{name}_once"), {axes.batch: 1, axes.tokens: max_length}), analysis.graph)
        self.encoder = Apart(Copy(Graph(f"{name}_encoder"), {axes.batch: 1}), analysis.graph)
        self.step = Copy(Graph(f"{name}_step"), {axes.batch: 1, axes.tokens: NEW})
        self.step.graph.sizes = {"T": SizeInfo(1), "R": SizeInfo(0), "N": SizeInfo(1)}
        self.facts = {site.op: site for site in analysis.sites}
        self.folded: dict[Value, Value] = {}
        """Old value → the input of the step graph that carries it."""
        self.tables: dict[Value, Value] = {}
        """Function of position → its rows at the step's positions."""
        self.ramps: list[str] = []
        self.selected = selection_point(analysis)

    def run(self) -> Derived:
        self._inputs()
        needed = self._needed()
        for op in self.analysis.graph.ops:
            if op in needed:
                self._op(op)
                if self.selected in op.results:
                    self._select()
        self.step.graph.outputs = (self.step.values[self.analysis.logits],)
        erase_dead(self.step.graph)
        once, encoder = self.once.copy.graph, self.encoder.copy.graph
        once.outputs = tuple(self.once.value(old) for old in self.folded)
        encoder.outputs = tuple(self.paging.encoded)
        encoder.sizes = {n: s for n, s in self.analysis.graph.sizes.items() if n == str(self.analysis.axes.encoder)}
        names = tuple(value.name for value in self.folded.values())
        ramps = tuple(dict.fromkeys(self.ramps))
        sites = tuple(self.paging.sites)
        return Derived(once, self.step.graph, encoder, names, sites, self.max_length, ramps)

    def _inputs(self) -> None:
        self.ids = self.step.input(self.analysis.tokens)
        device = self.ids.type.device  # type: ignore[union-attr]
        add = self.step.graph.add_input
        self.positions = add("positions", TensorType(DType.I64, (NEW,), device))
        self.rows = add("rows", TensorType(DType.I64, (WANTED,), device))
        batch = Batch.inputs(self.step.graph, self.analysis.sites, device)
        sizes: dict[str, Dim] = {str(symbol): value for symbol, value in self.once.copy.sizes.items()}
        self.paging = Paging(self.step.graph, batch, self.pages, sizes)

    def _needed(self) -> set[Op]:
        """The ops of the step: ancestors of the logits, up to what is folded."""
        found: set[Op] = set()
        waiting = [self.analysis.logits]
        while waiting:
            value = waiting.pop()
            op = value.op
            if op is None or op in found or self._is_folded(value) or self.step.number(value) is not None:
                continue
            found.add(op)
            facts = self.facts.get(op)
            waiting += op.operands if facts is None or not facts.cross else facts.in_step
        return found

    def _is_folded(self, value: Value) -> bool:
        """Whether a value is computed once: a function of position, or a constant that is computed."""
        known = self.analysis.known(value)
        if known is None or value.op is None or isinstance(value.type, ScalarType):
            return False
        if known.kind is Kind.POSITION or known.role is Role.SUFFIX:
            return True
        return known.kind is Kind.UNIFORM and known.role is None and not known.symbolic

    # -- operands

    def _operand(self, old: Value) -> Value:
        """The step's value for an operand of a token's op."""
        if old in self.step.values:
            return self.step.values[old]
        if old.op is None:
            return self.step.input(old)
        known = self.analysis.known(old)
        assert known is not None and self._is_folded(old)
        if known.kind is Kind.POSITION and "S" in known.symbolic:
            return self._at_positions(old, known)
        return self._carried(old)

    def _carried(self, old: Value) -> Value:
        """The input of the step that holds a folded value."""
        if old not in self.folded:
            name = self.step.graph.fresh(f"folded_{old.name}")
            value = Value(name, self.once.value(old).type)
            self.step.graph.inputs.append(value)
            self.folded[old] = value
        return self.folded[old]

    def _at_positions(self, old: Value, known: Known) -> Value:
        """Rows of a table of positions, at the step's positions."""
        if old not in self.tables:
            table = self._carried(old)
            places = known.having("S")
            if len(places) != 1 or any(a != "B" for a in known.dims[places[0]] if a != "S"):
                raise NotDerivable(ATTENTION, "a function of two positions, or of one merged with others", old.op)
            kind = tensor_type(table)
            shape = tuple(NEW if d == places[0] else n for d, n in enumerate(kind.shape))
            op = self.step.graph.create(
                "aten.index_select.default",
                (table, places[0], self.positions),
                (TensorType(kind.dtype, shape, kind.device),),
                names=[f"{old.name}_at"],
                loc=old.op.loc if old.op else None,
            )
            self.tables[old] = op.result
        return self.tables[old]

    # -- ops

    def _op(self, op: Op) -> None:
        if op in self.facts:
            self._attention(self.facts[op])
            return
        for value in op.operands:
            if value not in self.step.values and self.step.number(value) is None:
                self.step.values[value] = self._operand(value)
        self.step.op(op, self.analysis.graph)

    def _attention(self, facts: SiteFacts) -> None:
        sides = facts.op.args[3]
        assert isinstance(sides, tuple)
        carried = tuple(self._side(side) for side in sides if isinstance(side, Value))
        queries, keys, values = (value for value in facts.op.args[:3] if isinstance(value, Value))
        q = self._operand(queries)
        found = latent(facts, self.analysis.known)
        if facts.cross:
            apart = Emit(self.encoder.copy.graph, facts)
            result = self.paging.cross(facts, q, (self.encoder.value(keys), self.encoder.value(values)), apart, carried)
        elif found is None:
            result = self.paging.whole(facts, q, self._operand(keys), self._operand(values), carried)
        else:
            cached = [self._operand(value) for value in (found.source, *(part.value for part in found.shared))]
            result = self.paging.latent(facts, found, q, cached, carried, self._weight)
        self.ramps += (self._carried(table).name for table in facts.ramps)
        self.step.values[facts.op.results[0]] = result

    def _side(self, side: Value) -> Value:
        """A side operand whole: formulas read it at absolute positions."""
        return self._carried(side) if self._is_folded(side) else self._operand(side)

    def _weight(self, part: Part, heads: int) -> Value:
        """The rows of a part's weight, [heads, features, size of c]."""
        assert part.weight is not None
        weight = self.once.value(part.weight)
        kind = tensor_type(weight)
        width = kind.shape[1]
        assert isinstance(width, int)
        create = self.once.copy.graph.create
        whole = TensorType(kind.dtype, (heads, part.per_head, width), kind.device)
        by_head = create("aten.view.default", (weight, (heads, part.per_head, width)), (whole,)).result
        rows = TensorType(kind.dtype, (heads, part.size, width), kind.device)
        bounds = (by_head, 1, part.offset, part.offset + part.size)
        cut = create("aten.slice.Tensor", bounds, (rows,), names=[f"{weight.name}_rows"]).result
        self.once.copy.values[cut] = cut
        return self._carried(cut)

    def _select(self) -> None:
        """Keep the wanted rows of the value that was just made."""
        old = self.selected
        value = self.step.values[old]
        kind = tensor_type(value)
        chosen = self.step.graph.create(
            "aten.index_select.default",
            (value, 1, self.rows),
            (TensorType(kind.dtype, (1, WANTED, *kind.shape[2:]), kind.device),),
            names=["wanted"],
        )
        self.step.values[old] = chosen.result
        self.step.sizes = {**self.step.sizes, self.analysis.axes.tokens: WANTED}
