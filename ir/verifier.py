"""Checks that a graph obeys the rules of the IR.

A graph is SSA: every value has one name and one definition, and is defined above each use. Use lists mirror the
arguments. Passes assume this of their input and owe it of their output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from attnc.ir.constants import array_type, is_inline
from attnc.ir.diagnostics import Diagnostic, VerifyError
from attnc.ir.graph import Graph
from attnc.ir.lexer import is_identifier
from attnc.ir.opcheck import op_problems
from attnc.ir.typecheck import type_problems
from attnc.ir.types import TensorType
from attnc.ir.typetext import show_type
from attnc.ir.values import Location, Op, Value


def verify(graph: Graph) -> None:
    """Raises VerifyError, listing every problem, where the graph breaks a rule."""
    found = problems(graph)
    if found:
        raise VerifyError(graph, found)


def problems(graph: Graph) -> list[Diagnostic]:
    """Every problem of a graph and of the graphs in its regions, in execution order; empty for a valid graph."""
    return [*_sizes(graph), *_names(graph), *_order(graph), *_uses(graph), *_ops(graph), *_types(graph)]


def _error(code: str, message: str, op: Op | None = None, hint: str = "") -> Diagnostic:
    return Diagnostic("error", f"ir.{code}", message, op.loc if op else Location(), hint, op)


def _sizes(graph: Graph) -> Iterator[Diagnostic]:
    for name, info in graph.sizes.items():
        if not is_identifier(name):
            yield _error("size", f"size name {name!r} is not an identifier")
        if info.lo < 0 or (info.hi is not None and info.hi < info.lo):
            yield _error("size", f"size {name} has the bounds [{info.lo}, {info.hi}], which no length meets")


def _definitions(graph: Graph) -> Iterator[tuple[Value, Op | None]]:
    yield from ((value, None) for value in graph.inputs)
    yield from ((value, op) for op in graph.ops for value in op.results)


def _names(graph: Graph) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for value, op in _definitions(graph):
        if value.name in seen or not value.name:
            what = f"%{value.name} is defined twice" if value.name else "a value has an empty name"
            yield _error("name", what, op, "take names from Graph.fresh")
        seen.add(value.name)
        if value.op is not op:
            owner = "no op" if value.op is None else value.op.name
            yield _error("producer", f"%{value.name} says that its producer is {owner}", op)


def _order(graph: Graph) -> Iterator[Diagnostic]:
    """Each op stands once, below what it reads; outputs are defined."""
    everywhere = {value for value, _ in _definitions(graph)}
    defined, placed = set(graph.inputs), set[Op]()
    for op in graph.ops:
        if op in placed:
            yield _error("order", "the op stands twice in the graph", op)
        placed.add(op)
        for value in dict.fromkeys(op.operands):
            if value not in everywhere:
                yield _error("undefined", f"%{value.name} is not defined in this graph", op, "pass it as an input")
            elif value not in defined:
                yield _error("order", f"%{value.name} is read above its definition", op, "move the op below it")
        defined.update(op.results)
    for value in graph.output_values():
        if value not in everywhere:
            yield _error("undefined", f"output %{value.name} is not defined in this graph")


def _uses(graph: Graph) -> Iterator[Diagnostic]:
    """Use lists and arguments count each (value, user) pair alike; users that left the graph count 0."""
    listed = Counter((value, user) for value, _ in _definitions(graph) for user in value.uses)
    actual = Counter((value, op) for op in graph.ops for value in op.operands)
    defined = {value for value, _ in _definitions(graph)}
    for value, user in {**listed, **actual}:
        if value in defined and listed[value, user] != actual[value, user]:
            counts = f"{listed[value, user]} times, but it reads the value {actual[value, user]} times"
            message = f"the use list of %{value.name} has {user.name} {counts}"
            yield _error("uses", message, user, "change arguments with Op.set_args and Graph.replace_uses")


def _ops(graph: Graph) -> Iterator[Diagnostic]:
    for op in graph.ops:
        for code, message, hint in op_problems(op):
            yield Diagnostic("error", code, message, op.loc, hint, op)
        if op.name == "ir.constant":
            yield from _constant(graph, op)
        for region in op.regions.values():
            yield from problems(region)


def _constant(graph: Graph, op: Op) -> Iterator[Diagnostic]:
    name = str(op.attrs.get("name"))
    if name not in graph.constants:
        yield _error("constant", f"constant @{name} is not in the graph's constants", op)
        return
    payload, type = graph.constants[name], op.results[0].type if op.results else None
    if is_inline(payload) and isinstance(type, TensorType):
        actual = array_type(payload)
        if (type.dtype, type.shape) != (actual.dtype, actual.shape):
            yield _error(
                "constant", f"constant @{name} is {show_type(actual)}, which differs from the result's type", op
            )


def _types(graph: Graph) -> Iterator[Diagnostic]:
    for value, op in _definitions(graph):
        for message in type_problems(value.type, graph.sizes):
            yield _error("type", f"type of %{value.name}: {message}", op)
