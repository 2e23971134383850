"""The graph without a past: P := 0, the new rows of keys and values alone where a stream with them was."""

from __future__ import annotations

import sympy

from attnc.compiler.derive.copying import Copy
from attnc.compiler.derive.known import BATCH, TOKEN_AXIS, Known
from attnc.compiler.derive.past.axes import PLACES, along
from attnc.compiler.derive.past.check import Proved
from attnc.compiler.derive.refusal import CACHE, NotDerivable
from attnc.ir.attention import AttentionSpec
from attnc.ir.graph import Graph, SizeInfo
from attnc.ir.types import Dim, ScalarType, TensorType, Type, as_dim
from attnc.ir.values import Arg, Op, Value

_SIZED = {"aten.expand": 1, "aten.view": 1, "aten.reshape": 1, "aten._unsafe_view": 1}
"""Where operators that buffers may go through have a list of sizes."""


def without_past(proved: Proved, tokens: str, longest: int) -> Graph:
    """The graph of whole sequences, up to ``longest`` tokens; its input of ids is called ``tokens``."""
    return _Emptied(proved, tokens, longest).run()


class _Emptied:
    def __init__(self, proved: Proved, tokens: str, longest: int) -> None:
        self.proved, self.tokens = proved, tokens
        axes = proved.axes
        graph = Graph(proved.graph.name)
        graph.sizes = {str(axes.batch): proved.graph.sizes[str(axes.batch)], str(axes.tokens): SizeInfo(2, longest)}
        self.copy = Copy(graph, {axes.earlier: 0})
        self.lengths: dict[sympy.Expr, Value] = {}

    def run(self) -> Graph:
        graph, logits = self.proved.graph, self.proved.graph.output_values()[0]
        needed, inputs = self._needed(logits)
        for value in graph.inputs:
            if value is self.proved.tokens:
                self.ids = self.copy.graph.add_input(self.tokens, self.copy.type(value.type))
                self.copy.values[value] = self.ids
            elif value in inputs:
                self.copy.input(value)
        for op in graph.ops:
            if op in needed:
                self._op(op)
        self.copy.graph.outputs = (self._value(logits),)
        return self.copy.graph

    def _needed(self, logits: Value) -> tuple[set[Op], set[Value]]:
        """The ops and inputs that the logits depend on when there is no past."""
        found: set[Op] = set()
        inputs: set[Value] = set()
        waiting = [logits]
        while waiting:
            value = waiting.pop()
            if value in self.proved.streams.rows:
                waiting.append(self.proved.streams.rows[value])
            elif value.op is None:
                inputs.add(value)
            elif value.op not in found and self._length(value) is None:
                found.add(value.op)
                waiting += value.op.operands
        return found, inputs

    def _length(self, value: Value) -> Dim | None:
        """A host number that is a length: a literal, B or S."""
        if not isinstance(value.type, ScalarType) or value.type.kind != "int" or value.type.expr is None:
            return None
        length = self.copy.dim(value.type.expr)
        axes = self.proved.axes
        return length if isinstance(length, int) or length in (axes.batch, axes.tokens) else None

    def _size(self, length: Dim) -> Arg:
        """A length as an argument."""
        if isinstance(length, int):
            return length
        if length not in self.lengths:
            place = (self.proved.axes.batch, self.proved.axes.tokens).index(length)
            made = self.copy.graph.create("aten.sym_size.int", (self.ids, place), (ScalarType("int", length),))
            self.lengths[length] = made.result
        return self.lengths[length]

    def _value(self, old: Value) -> Value:
        """The new value for an old one."""
        return self.copy.values[self._rows(old)]

    def _rows(self, old: Value) -> Value:
        while old in self.proved.streams.rows:
            old = self.proved.streams.rows[old]
        return old

    def _op(self, op: Op) -> None:
        for value in op.operands:
            length = self._length(value)
            if length is not None and not isinstance(length, int):
                made = self._size(length)
                assert isinstance(made, Value)
                self.copy.values[value] = made
            elif value in self.proved.streams.rows:
                self.copy.values[value] = self._value(value)
        if op.name == "attn.attention":
            self._attention(op)
        elif any(self._places(value) for value in op.results):
            self._rearranged(op)
        else:
            self.copy.op(op, self.proved.graph)

    def _attention(self, op: Op) -> None:
        """The attention without a past; sizes that its formulas don't read any more are left out."""
        spec: AttentionSpec = op.attrs["spec"]
        made = self.proved.shift.emptied(spec)
        sizes = op.args[4]
        assert isinstance(sizes, tuple)
        given = tuple(size for name, size in zip(spec.sizes, sizes, strict=True) if name in made.sizes)
        new = self.copy.graph.create(
            op.name,
            (*map(self.copy.arg, op.args[:4]), tuple(map(self.copy.arg, given))),
            tuple(self.copy.type(value.type) for value in op.results),
            attrs={**op.attrs, "spec": made},
            loc=op.loc,
            names=[value.name for value in op.results],
        )
        self.copy.values.update(zip(op.results, new.results, strict=True))

    def _places(self, value: Value) -> tuple[int, ...]:
        """The dimensions of a value that are places of a buffer."""
        known = self.proved.facts[value]
        return along(known.dims, PLACES) if isinstance(known, Known) else ()

    def _rearranged(self, op: Op) -> None:
        """An op on places of a buffer, on as many as there are tokens."""
        if len(op.results) != 1:
            raise NotDerivable(CACHE, "places of a buffer are read in a form that has several results", op)
        made = self._shortened(op.results[0])
        at = _SIZED.get(op.name.rpartition(".")[0])
        args = list(map(self.copy.arg, op.args))
        if at is not None:
            args[at] = tuple(self._size(length) for length in self._plain(op, made.shape))
        new = self.copy.graph.create(
            op.name,
            args,
            (made,),
            kwargs={key: self.copy.arg(arg) for key, arg in op.kwargs.items()},
            loc=op.loc,
            names=[op.results[0].name],
        )
        new.meta = {key: value for key, value in op.meta.items() if key == "target"}
        self.copy.values[op.results[0]] = new.result

    def _shortened(self, old: Value) -> TensorType:
        """The type of a value with S in place of a buffer's places."""
        kind: Type = self.copy.type(old.type)
        known = self.proved.facts[old]
        assert isinstance(kind, TensorType) and isinstance(known, Known)
        shape = list(kind.shape)
        for place in along(known.dims, PLACES):
            atoms = [TOKEN_AXIS if isinstance(a, str) and a.startswith(PLACES) else a for a in known.dims[place]]
            shape[place] = as_dim(sympy.Mul(*map(self.proved.axes.length, atoms)))
        return TensorType(kind.dtype, tuple(shape), kind.device)

    def _plain(self, op: Op, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """A shape as literals, B and S. Raises NotDerivable for products of them."""
        axes = self.proved.axes
        if any(not isinstance(n, int) and n not in (axes.batch, axes.tokens) for n in shape):
            raise NotDerivable(CACHE, f"places of a buffer are merged with {BATCH} or heads", op)
        return shape
