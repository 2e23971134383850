"""The proof that a graph with a past gives the last rows of one without.

After P tokens, row s of every value along new tokens must be row P + s of the value that the graph without a past has,
given all P + S tokens; and every value along all tokens must be the same there. It is proved of one op after another:
a rule that keeps tokens apart keeps this too, integers are compared by formula, and keys and values of earlier tokens
are what an earlier step gave back. Whether the graph without a past is a decoder is then for the ordinary analysis.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sympy

from attnc.compiler.derive.analysis import attempted, constant_result, enter, part, scalar_fact
from attnc.compiler.derive.guard import check_operands, in_order
from attnc.compiler.derive.known import BATCH, TOKEN_AXIS, Kind, Known
from attnc.compiler.derive.past.attention import StepAttention
from attnc.compiler.derive.past.axes import EARLIER, PLACES, PastAxes, along
from attnc.compiler.derive.past.cuts import at_positions, filled
from attnc.compiler.derive.past.formulas import Shift
from attnc.compiler.derive.past.kinds import kind_of
from attnc.compiler.derive.past.streams import Streams
from attnc.compiler.derive.refusal import CACHE, NO_RULE, NotDerivable
from attnc.compiler.derive.rules import rule_of
from attnc.compiler.derive.step import Fact, Step
from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.lift.lifter import Lifter
from attnc.ir import index as ix
from attnc.ir.graph import Graph
from attnc.ir.ops.effects import is_pure
from attnc.ir.types import NoneType, ScalarType, TensorType
from attnc.ir.values import Op, Value

REARRANGES = frozenset(
    f"aten.{n}"
    for n in (
        "clone alias detach contiguous _to_copy to transpose permute unsqueeze expand view reshape _unsafe_view slice "
        "slice_scatter copy sym_size"
    ).split()
) | {"attn.attention"}
"""What may be done with places of a buffer that may not be filled yet."""


_MANY = 1 << 31


@dataclass(frozen=True)
class Proved:
    """A graph with a past, of which everything is proved."""

    graph: Graph
    axes: PastAxes
    tokens: Value
    facts: dict[Value, Fact]
    streams: Streams
    shift: Shift

    @property
    def places(self) -> tuple[int, ...]:
        """How many tokens each of its buffers of fixed length holds, and without one more than any."""
        known = (found for found in self.facts.values() if isinstance(found, Known))
        atoms = {a for found in known for a in found.symbolic if a.startswith(PLACES)}
        return (_MANY, *(int(atom[1:]) for atom in atoms))


def prove(graph: Graph, axes: PastAxes, tokens: Value, state: Collection[str], past: Sequence[Value]) -> Proved:
    """Prove it of a graph that gives the logits, then what ``past`` is next time, in order, then counts of all tokens.

    ``state``: inputs that are weights. Inputs of no other kind may be read. Raises NotDerivable.
    """
    check = _Check(graph, axes, tokens, state, past)
    for op in graph.ops:
        check.visit(op)
    check.outputs(past)
    return Proved(graph, axes, tokens, check.facts, check.streams, check.shift)


class _Check:
    def __init__(
        self, graph: Graph, axes: PastAxes, tokens: Value, state: Collection[str], past: Sequence[Value]
    ) -> None:
        self.graph, self.axes = graph, axes
        self.shift = Shift(axes.earlier, axes.tokens)
        self.lifter = Lifter(graph)
        self.streams = Streams(axes, self._is_position)
        self.facts: dict[Value, Fact] = {}
        self.named: dict[str, Value] = {}
        for value in graph.inputs:
            self.named[value.name] = value
            self.facts[value] = self._input(value, tokens, state, past)

    def _input(self, value: Value, tokens: Value, state: Collection[str], past: Sequence[Value]) -> Fact:
        if not isinstance(value.type, TensorType):
            return Known(Kind.UNIFORM, ())
        if value is tokens:
            return Known(Kind.TOKEN, ((BATCH,), (TOKEN_AXIS,)))
        try:
            if value in past:
                return self.streams.begin(value)
        except NotDerivable as refusal:
            return refusal
        dims = self.axes.label(value.type.shape)
        if dims is None or value.name not in state:
            return NotDerivable(CACHE, f"nothing is known of the input %{value.name} of a step")
        return Known(Kind.UNIFORM, dims)

    # -- ops

    def visit(self, op: Op) -> None:
        """Enter what is known of an op's results, or why nothing is."""
        self.named.update((value.name, value) for value in op.results)
        if not op.results or isinstance(op.results[0].type, ScalarType | NoneType):
            self.facts.update(dict.fromkeys(op.results, scalar_fact(op, self.facts)))
            return
        step = Step(op, self.axes, self.facts)
        found = attempted(step, self._known)
        if isinstance(found, NotDerivable) or (isinstance(found, Known) and found.kind is Kind.LENGTH):
            found = self._by_formula(step) or found
        enter(op, found, self.facts)

    def _known(self, step: Step) -> Known | tuple[Known, ...]:
        op = step.op
        for value in op.operands:
            if isinstance(found := self.facts[value], NotDerivable):
                raise found
        known = self.streams.visit(step) or at_positions(step, self.axes) or filled(step, self.axes)
        if known is not None:
            return known
        if op.name == "ir.constant":
            return Known(Kind.UNIFORM, step.label())
        if op.name == "py.getitem":
            return part(step)
        self._check_places(step)
        check_operands(step)
        if op.name == "attn.attention":
            return StepAttention(step, self.shift).known()
        rule = rule_of(op.name)
        if rule is not None:
            return self._settled(step, rule(step))
        if not is_pure(op):
            raise step.refuse(NO_RULE, "an operator with a side effect, or that draws random numbers")
        return constant_result(step)

    def _check_places(self, step: Step) -> None:
        """Places of a buffer behind the last token hold anything: only an attention's mask can hide them."""
        name = step.op.name if step.op.name == "attn.attention" else step.op.name.rpartition(".")[0]
        if name not in REARRANGES and any(along(known.dims, PLACES) for known in step.tensors()):
            raise step.refuse(CACHE, "places of a buffer that may be empty are computed with outside attention")

    def _settled(self, step: Step, found: Known | tuple[Known, ...]) -> Known | tuple[Known, ...]:
        def settled(known: Known) -> Known:
            return dataclasses.replace(in_order(step, known), kind=kind_of(step, self.shift, known.kind))

        return tuple(map(settled, found)) if isinstance(found, tuple) else settled(found)

    # -- formulas

    def _by_formula(self, step: Step) -> Known | None:
        """What is known of integers and conditions whose formula is that of the whole sequence."""
        kind = step.op.results[0].type
        if len(step.op.results) != 1 or not isinstance(kind, TensorType) or kind.dtype.is_complex:
            return None
        dims = self.axes.label(step.shape)
        if dims is None:
            return None
        coords = tuple(ix.axis(f"i{d}") if dim else sympy.Integer(0) for d, dim in enumerate(dims))
        formula = self.lifter.index(step.op.results[0], coords)
        if formula is None or not all(map(self._is_readable, ix.loads(formula))):
            return None
        new = [c for c, dim in zip(coords, dims, strict=True) if dim == (TOKEN_AXIS,)]
        if EARLIER in {a for dim in dims for a in dim} or not self.shift.agrees(formula, new, self.rows):
            return None
        return Known(Kind.POSITION, dims)

    def _is_readable(self, load: ix.Load) -> bool:
        known = self.facts[self.named[load.name]]
        return isinstance(known, Known) and known.kind <= Kind.POSITION and known.role is None

    def rows(self, name: str) -> tuple[int, ...]:
        """The dimensions of a value that lie along new tokens."""
        known = self.facts[self.named[name]]
        return along(known.dims, TOKEN_AXIS) if isinstance(known, Known) else ()

    def _is_position(self, value: Value) -> bool:
        if tensor_type(value).rank != 1 or tensor_type(value).shape[0] != self.axes.tokens:
            return False
        place = ix.axis("i0")
        found = self.lifter.index(value, (place,))
        return found is not None and sympy.expand(found - place - self.axes.earlier) == 0

    # -- outputs

    def outputs(self, past: Sequence[Value]) -> None:
        """The logits are the tokens', and every stream is given back whole. Raises NotDerivable."""
        logits, *presents = self.graph.output_values()
        found = self.facts[logits]
        if isinstance(found, NotDerivable):
            raise found
        if not isinstance(found, Known) or found.kind is not Kind.TOKEN or found.role is not None:
            raise NotDerivable(CACHE, f"the first output, %{logits.name}, is no data of the new tokens", logits.op)
        for before, after in zip(past, presents, strict=False):
            self._check_present(before, after)
        for count in presents[len(past) :]:
            counted = self.lifter.index(count, ())
            if counted is None or sympy.expand(counted - self.axes.all) != 0:
                raise NotDerivable(CACHE, "a count of tokens isn't that of all of them afterwards", count.op)

    def _check_present(self, before: Value, after: Value) -> None:
        if isinstance(found := self.facts[after], NotDerivable):
            raise found
        held = self.streams.whole.get(after)
        if held is None or held.stream is not before or held.order != tuple(range(len(held.order))):
            reason = f"what is given back for %{before.name} isn't it with the new rows behind it, and nothing else"
            raise NotDerivable(CACHE, reason, after.op)
