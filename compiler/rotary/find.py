"""Find the rotations of a graph: which values to ask about, and the outermost that are proved."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from attnc.compiler.fuse.axes import LayoutError
from attnc.compiler.fuse.layout import LAYOUT_OPS, source
from attnc.compiler.fuse.pointwise import BINARY, CASTS
from attnc.compiler.lift.lifter import Lifter
from attnc.compiler.rotary.angles import NEGATIONS
from attnc.compiler.rotary.given import given_tables
from attnc.compiler.rotary.operands import Operands
from attnc.compiler.rotary.proof import Rotation, prove
from attnc.compiler.rotary.reads import NotRotation
from attnc.compiler.rotary.rearranging import PARTING, REARRANGING
from attnc.compiler.rotary.tables import GIVEN
from attnc.compiler.rotary.terms import Expander, Expansion
from attnc.compiler.rotary.waves import COMPLEX, KINDS, POLAR, Waves
from attnc.ir.graph import Graph
from attnc.ir.types import TensorType, TupleType, Type
from attnc.ir.values import Op, Value, walk_values

_FOLLOWED = REARRANGING | PARTING | NEGATIONS | CASTS | frozenset(BINARY) | {COMPLEX}


@dataclass
class Marks:
    """Values that may take part, found in one walk from the cosines on.

    ``waves`` are made of cosines and sines alone; ``turned`` have some elements negated; ``rotated`` are computed from
    a product with one of these. ``given`` are inputs that may hold cosines or sines, and what is taken from them.
    """

    given: set[Value] = field(default_factory=set)
    waves: set[Value] = field(default_factory=set)
    turned: set[Value] = field(default_factory=set)
    rotated: set[Value] = field(default_factory=set)

    @staticmethod
    def of(graph: Graph, given: Collection[Value]) -> Marks:
        marks = Marks(given=set(given))
        for op in graph.ops:
            if len(op.results) == 1:
                marks._mark(op)
        return marks

    def _mark(self, op: Op) -> None:
        if op.name in KINDS or op.name == POLAR or _is_table(op):
            self.waves.add(op.results[0])
        elif op.name in _FOLLOWED:
            self._follow(op, {value for value in walk_values(op.args) if _holds_floats(value.type)}, op.results[0])

    def _follow(self, op: Op, read: set[Value], result: Value) -> None:
        waves, given = read & self.waves, read & self.given
        if waves and waves == read:
            self.waves.add(result)
        elif given == read and len(read) == 1:
            self.given.add(result)
        elif (waves or given or read & self.turned) and BINARY.get(op.name) == "mul":
            self.rotated.add(result)
        elif read & self.rotated:
            self.rotated.add(result)
        elif read & self.turned or (op.name in REARRANGING and any(_is_negation(value) for value in read)):
            self.turned.add(result)


def _is_table(op: Op) -> bool:
    kind = op.results[0].type
    return op.name == "ir.constant" and isinstance(kind, TensorType) and kind.rank > 1 and not kind.dtype.is_int


def _holds_floats(kind: Type) -> bool:
    if isinstance(kind, TensorType):
        return kind.dtype.is_float or kind.dtype.is_complex
    return isinstance(kind, TupleType)


def _is_negation(value: Value) -> bool:
    return value.op is not None and value.op.name in NEGATIONS


def _makes_features(op: Op) -> bool:
    """Whether the last dimension is computed or put together here: a view of whole features is no place to ask."""
    if op.name in LAYOUT_OPS or op.name == "aten.slice.Tensor":
        before, after = source(op).type, op.result.type
        assert isinstance(before, TensorType) and isinstance(after, TensorType)
        return before.rank > 0 and after.rank > 0 and before.shape[-1] != after.shape[-1]
    return op.name not in CASTS


@dataclass(frozen=True)
class Refusal:
    """A value that looks like a rotation and is none, or isn't shown to be one."""

    op: Op
    reason: str


@dataclass
class Found:
    """Proved rotations in execution order with their operands, and what was refused."""

    rotations: list[tuple[Rotation, Operands]] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    unrecorded: Collection[Op] = ()
    """Ops that run with gradients off."""


def find_rotations(graph: Graph) -> Found:
    """Ask from the last op backward, so that a rotation is found whole before its parts."""
    given = given_tables(graph)
    marks = Marks.of(graph, given)
    if not marks.rotated:
        return Found()
    waves = Waves(graph, Lifter(graph), _without_gradients(graph), given)
    order = {op: place for place, op in enumerate(graph.ops)}
    search = _Search(waves, Expander(waves, order, marks.waves, marks.turned, marks.given), marks.rotated)
    for op in reversed(graph.ops):
        if op.results and op.results[0] in marks.rotated and op not in search.covered and _makes_features(op):
            search.ask(op)
    return search.found()


@dataclass
class _Search:
    waves: Waves
    expander: Expander
    rotated: set[Value]
    rotations: list[tuple[Rotation, Operands]] = field(default_factory=list)
    refused: list[tuple[Refusal, set[Op]]] = field(default_factory=list)
    covered: set[Op] = field(default_factory=set)

    def ask(self, op: Op) -> None:
        """Prove one value, or remember why not."""
        try:
            expansion = Expansion.of(op.result)
        except (NotRotation, LayoutError):
            return
        try:
            rotation = self._proved(expansion)
        except (NotRotation, LayoutError) as refused:
            if self._looks_like_one(expansion):
                self.refused.append((Refusal(op, str(refused)), expansion.met))
        else:
            if rotation is not None:
                self.rotations.append(rotation)
                self.covered |= expansion.met

    def _proved(self, expansion: Expansion) -> tuple[Rotation, Operands] | None:
        """The proof over the nearest x that gives one. None where the value has no waves; raises NotRotation else."""
        reason = NotRotation("")
        while self.expander.step(expansion):
            x = expansion.shared()
            if x is None:
                continue
            try:
                rotation = prove(expansion, x, self.waves.angles())
                return rotation, Operands.of(rotation.angles) if rotation.angles else Operands(())
            except NotRotation as refused:
                if expansion.has_waves and not str(reason):
                    reason = refused
        if str(reason):
            raise reason
        return None

    def _looks_like_one(self, expansion: Expansion) -> bool:
        """Whether two products are added, one of them with a wave or with features turned round.

        Products with what might be a given wave are no sign of a rotation.
        """
        if any((term.kind == GIVEN).any() for term in expansion.terms):
            return False
        return expansion.is_complex or any(self._adds_products(op) for op in expansion.met)

    def _adds_products(self, op: Op) -> bool:
        operands = set(walk_values(op.args))
        products = all(x.op is not None and BINARY.get(x.op.name) == "mul" for x in operands)
        return BINARY.get(op.name) in ("add", "sub") and products and bool(operands & self.rotated)

    def found(self) -> Found:
        """In execution order; a refusal counts where neither a part of it nor the whole around it was proved."""
        seen: set[Op] = set(self.covered)
        refusals = []
        for refusal, met in self.refused:
            if not met & seen:
                refusals.append(refusal)
            seen |= met
        return Found(self.rotations[::-1], refusals[::-1], self.waves.unrecorded)


def _without_gradients(graph: Graph) -> set[Op]:
    """The ops between a switch of gradients off and the next on."""
    found: set[Op] = set()
    recording = True
    for op in graph.ops:
        if op.name == "torch.set_grad_enabled":
            recording = op.args[0] is True
        elif not recording:
            found.add(op)
    return found
