"""Graphs made from parts of another graph: its ops issued again, with other sizes in place of ``B`` and ``S``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import sympy

from attnc.compiler.host.metadata import carried
from attnc.ir.graph import Graph
from attnc.ir.types import Dim, ScalarType, TensorType, TupleType, Type, as_dim
from attnc.ir.values import Arg, Op, Value, map_values


@dataclass
class Copy:
    """A new graph, and which of its values stands for which of the old one."""

    graph: Graph
    sizes: Mapping[sympy.Symbol, Dim]
    """What old sizes are in the new graph."""
    values: dict[Value, Value] = field(default_factory=dict)

    def type(self, old: Type) -> Type:
        """A type with the new sizes; strides are left out, since views of other lengths have others."""
        match old:
            case TensorType():
                return TensorType(old.dtype, tuple(map(self.dim, old.shape)), old.device)
            case ScalarType(expr=expr) if expr is not None:
                return ScalarType(old.kind, self.dim(expr))
            case TupleType():
                return TupleType(tuple(map(self.type, old.elements)))
        return old

    def dim(self, old: Dim) -> Dim:
        """A dimension with the new sizes."""
        return old if isinstance(old, int) else as_dim(old.subs(self.sizes))

    def input(self, old: Value) -> Value:
        """An input like an old one."""
        new = self.graph.add_input(old.name, self.type(old.type))
        self.values[old] = new
        return new

    def arg(self, old: Arg) -> Arg:
        """An argument tree on the new values; sizes that are numbers now are written as such."""
        return map_values(old, lambda value: self.values[value] if (n := self.number(value)) is None else n)

    def number(self, old: Value) -> int | None:
        """The number that a size has become; None for any other value, and for a size that still varies."""
        if not isinstance(old.type, ScalarType) or old.type.kind != "int" or old.type.expr is None:
            return None
        length = self.dim(old.type.expr)
        return length if isinstance(length, int) else None

    def op(self, old: Op, source: Graph) -> Op:
        """An op issued again. A constant's payload comes along."""
        new = self.graph.create(
            old.name,
            tuple(map(self.arg, old.args)),
            tuple(self.type(value.type) for value in old.results),
            kwargs={key: self.arg(arg) for key, arg in old.kwargs.items()},
            attrs=old.attrs,
            loc=old.loc,
            names=[value.name for value in old.results],
        )
        new.meta = {key: value for key, value in old.meta.items() if key in ("target", "template")}
        new.meta["fx"] = carried(old.meta.get("fx", {}))
        if old.name == "ir.constant":
            self.graph.constants[str(old.attrs["name"])] = source.constants[str(old.attrs["name"])]
        self.values.update(zip(old.results, new.results, strict=True))
        return new


@dataclass
class Apart:
    """A graph of its own for values of another graph, with all that they are computed from."""

    copy: Copy
    source: Graph

    def value(self, old: Value) -> Value:
        """The value that stands for an old one; it is computed where it isn't yet."""
        if old not in self.copy.values:
            self._compute(old)
        return self.copy.values[old]

    def _compute(self, old: Value) -> None:
        needed: set[Op] = set()
        waiting = [old]
        while waiting:
            value = waiting.pop()
            if value in self.copy.values or self.copy.number(value) is not None:
                continue
            if value.op is None:
                self.copy.input(value)
            elif value.op not in needed:
                needed.add(value.op)
                waiting += value.op.operands
        for op in self.source.ops:
            if op in needed:
                self.copy.op(op, self.source)
