"""The graph: inputs, an ordered list of ops, outputs, named sizes and constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnc.ir.types import Type
from attnc.ir.values import Arg, Location, Op, Value, map_values, walk_values

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True)
class SizeInfo:
    """Bounds of a named size, inclusive; ``hi`` None means unbounded."""

    lo: int = 1
    hi: int | None = None


@dataclass(eq=False)
class Graph:
    """An SSA graph in execution order.

    Ops with side effects keep their place in ``ops``; everything else may move as far as its operands allow.
    ``constants`` maps the name used by ``ir.constant`` to a host payload (a tensor, a submodule), by identity.
    """

    name: str = "graph"
    inputs: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    outputs: tuple[Arg, ...] = ()
    sizes: dict[str, SizeInfo] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict, repr=False)
    """Belongs to the host frontend: carried through rewrites and never printed."""
    _taken: dict[str, int] = field(default_factory=dict, repr=False)
    """Every name given out, and the last number appended to it."""

    def add_input(self, name: str, type: Type) -> Value:
        """Append an input; the name is made unique."""
        value = Value(self.fresh(name), type)
        self.inputs.append(value)
        return value

    def fresh(self, name: str) -> str:
        """A value name not yet taken in this graph: ``name``, else ``name_1``, ``name_2``, …"""
        candidate = name
        while candidate in self._taken:
            self._taken[name] += 1
            candidate = f"{name}_{self._taken[name]}"
        self._taken[candidate] = 0
        return candidate

    def create(
        self,
        name: str,
        args: Iterable[Arg],
        result_types: Iterable[Type],
        *,
        kwargs: Mapping[str, Arg] | None = None,
        attrs: Mapping[str, Any] | None = None,
        loc: Location | None = None,
        before: Op | None = None,
        after: Op | None = None,
        names: Iterable[str] | None = None,
    ) -> Op:
        """Make an op and insert it before ``before``, after ``after``, or at the end.

        Results are named by ``names``, else after the op; names are made unique.
        """
        types = tuple(result_types)
        wanted = tuple(names) if names is not None else tuple(name.split(".")[1] for _ in types)
        op = Op(name, tuple(args), dict(kwargs or {}), (), dict(attrs or {}), loc=loc or Location())
        op.results = tuple(Value(self.fresh(n), t, op) for n, t in zip(wanted, types, strict=True))
        for value in op.operands:
            value.uses.append(op)
        if before is not None:
            self.ops.insert(self.ops.index(before), op)
        elif after is not None:
            self.ops.insert(self.ops.index(after) + 1, op)
        else:
            self.ops.append(op)
        return op

    def add_constant(
        self, name: str, payload: object, type: Type, *, loc: Location | None = None, before: Op | None = None
    ) -> Value:
        """A constant with this payload, made as :meth:`create` makes ops; its key is ``name``, else ``name_1``, …"""
        key = self.fresh(name)
        while key in self.constants:
            key = self.fresh(name)
        self.constants[key] = payload
        return self.create("ir.constant", (), (type,), attrs={"name": key}, names=(key,), loc=loc, before=before).result

    def replace_uses(self, old: Value, new: Value) -> None:
        """Make every user of ``old``, the graph outputs included, read ``new``."""
        for user in old.users:
            swap = lambda v: new if v is old else v  # noqa: E731
            user.set_args(
                tuple(map_values(a, swap) for a in user.args),
                {k: map_values(a, swap) for k, a in user.kwargs.items()},
            )
        self.outputs = tuple(map_values(a, lambda v: new if v is old else v) for a in self.outputs)

    def output_values(self) -> list[Value]:
        return list(walk_values(self.outputs))

    def erase(self, op: Op) -> None:
        """Remove an op whose results nobody reads. Raises ValueError where somebody does."""
        for value in op.results:
            if value.uses or value in self.output_values():
                raise ValueError(f"cannot erase {op.name}: %{value.name} is still read")
        op.set_args((), {})
        self.ops.remove(op)

    def to_networkx(self) -> networkx.DiGraph[Op | Value]:
        """Ops and inputs as nodes, data flow as edges; see :func:`attnc.ir.graphview.to_networkx`."""
        from attnc.ir.graphview import to_networkx

        return to_networkx(self)

    def to_dot(self) -> str:
        """The graph in Graphviz's language."""
        from attnc.ir.graphview import to_dot

        return to_dot(self)

    def __str__(self) -> str:
        from attnc.ir.printer import print_graph

        return print_graph(self)
