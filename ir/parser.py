"""Reads the text form: one recursive-descent function per rule of the grammar in docs/ir.md.

Reading stops at the first error, which says where it is, what was expected and what was found. The graph read is not
verified: text of a broken graph can be read in order to look at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnc.ir.argtext import parse_args, parse_call, parse_entry, parse_location
from attnc.ir.attention import AttentionSpec
from attnc.ir.constants import UNBOUND, constant_type, parse_constant
from attnc.ir.graph import Graph, SizeInfo
from attnc.ir.lexer import Cursor, Token, is_identifier, is_op_name
from attnc.ir.ops import REGISTRY
from attnc.ir.spectext import parse_spec
from attnc.ir.types import Type
from attnc.ir.typetext import parse_type, show_type
from attnc.ir.values import Arg, Value


def parse_graph(text: str, *, source: str = "<text>", constants: Mapping[str, Any] | None = None) -> Graph:
    """The graph that ``text`` describes.

    ``source`` names the text in errors; ``constants`` gives payloads to constants declared without numbers.
    Raises ParseError.
    """
    cursor = Cursor(text, source)
    try:
        graph = _graph(cursor, constants or {})
    except RecursionError:
        cursor.fail("this is nested too deeply to read", cursor.token)
    if cursor.token.kind != "end":
        cursor.fail("expected the end of the text after the graph")
    return graph


def _graph(cursor: Cursor, constants: Mapping[str, Any]) -> Graph:
    cursor.expect("graph", "at the start of a graph")
    graph = Graph(cursor.unquote(cursor.take("symbol", "the graph's @name"), 1))
    values: dict[str, Value] = {}
    _inputs(cursor, graph, values)
    if cursor.accept("sizes"):
        _sizes(cursor, graph)
    cursor.expect("{", "before the graph's body")
    declared = _constants(cursor, graph, constants)
    while not cursor.at("return"):
        if cursor.token.kind not in ("value", "name"):
            cursor.fail("expected an op or return")
        _op(cursor, graph, values, constants)
    cursor.expect("return")
    graph.outputs = parse_args(cursor, values, "}")
    _check_constants(cursor, graph, declared)
    return graph


def _inputs(cursor: Cursor, graph: Graph, values: dict[str, Value]) -> None:
    cursor.expect("(", "before the inputs")
    while not cursor.accept(")"):
        if graph.inputs:
            cursor.expect(",", "or ')' after an input")
        _, name, type = _typed_value(cursor, values)
        values[name] = graph.add_input(name, type)


def _typed_value(cursor: Cursor, values: Mapping[str, Value]) -> tuple[Token, str, Type]:
    """Read ``%name: type`` where ``name`` is new."""
    token = cursor.take("value", "a value (%name)")
    name = cursor.unquote(token, 1)
    if name in values:
        cursor.fail(f"%{name} is defined twice", token)
    cursor.expect(":", f"and a type after %{name}")
    return token, name, parse_type(cursor)


def _sizes(cursor: Cursor, graph: Graph) -> None:
    cursor.expect("(", "before the sizes")
    while not cursor.accept(")"):
        if graph.sizes:
            cursor.expect(",", "or ')' after a size")
        name = cursor.take("name", "a size name")
        if not is_identifier(name.text) or name.text in graph.sizes:
            cursor.fail(f"size {name.text!r} is declared twice or is not a plain name", name)
        cursor.expect("in", "and bounds after a size name")
        cursor.expect("[", "before the bounds")
        low = int(cursor.take("int", "the lower bound").text)
        cursor.expect(",", "between the bounds")
        high = None if cursor.accept("inf") else int(cursor.take("int", "the upper bound or inf").text)
        cursor.expect("]", "after the bounds")
        graph.sizes[name.text] = SizeInfo(low, high)


def _constants(cursor: Cursor, graph: Graph, payloads: Mapping[str, Any]) -> dict[str, tuple[Token, Type]]:
    """Read the declarations; the result holds those with a type and no numbers, for :func:`_check_constants`."""
    declared: dict[str, tuple[Token, Type]] = {}
    while cursor.at("constant"):
        token = cursor.peek()
        name, type, payload = parse_constant(cursor)
        if name in graph.constants:
            cursor.fail(f"constant @{name} is declared twice", token)
        graph.constants[name] = payloads.get(name) if payload is UNBOUND else payload
        if type is not None and payload is UNBOUND:
            declared[name] = (token, type)
    return declared


def _check_constants(cursor: Cursor, graph: Graph, declared: Mapping[str, tuple[Token, Type]]) -> None:
    for name, (token, type) in declared.items():
        read = constant_type(graph, name)
        if read is not None and read != type:
            cursor.fail(f"constant @{name} is declared {show_type(type)} but read as {show_type(read)}", token)


def _op(cursor: Cursor, graph: Graph, values: dict[str, Value], constants: Mapping[str, Any]) -> None:
    results = _results(cursor, values)
    name = cursor.take("name", "an op name (dialect.name)")
    if not is_op_name(name.text):
        cursor.fail(f"{name.text!r} is not an op name; write dialect.name, such as aten.relu.default", name)
    args, kwargs = parse_call(cursor, values)
    attrs = _attributes(cursor, name.text, args) if cursor.at("{") else {}
    regions = _regions(cursor, constants) if cursor.accept("regions") else {}
    loc = parse_location(cursor)
    names, types = list(results), list(results.values())
    op = graph.create(name.text, args, types, kwargs=kwargs, attrs=attrs, loc=loc, names=names)
    op.regions = regions
    values.update(zip(names, op.results, strict=True))


def _results(cursor: Cursor, values: Mapping[str, Value]) -> dict[str, Type]:
    results: dict[str, Type] = {}
    if cursor.token.kind != "value":
        return results
    while not cursor.accept("="):
        if results:
            cursor.expect(",", "or '=' after a result")
        token, name, type = _typed_value(cursor, values)
        if name in results:
            cursor.fail(f"%{name} is defined twice", token)
        results[name] = type
    return results


def _attributes(cursor: Cursor, op: str, args: tuple[Arg, ...]) -> dict[str, Any]:
    definition = REGISTRY.get(op)
    spec = definition.attribute("spec") if definition else None
    if spec is not None and spec.type is AttentionSpec:
        return {"spec": parse_spec(cursor, args)}
    attrs: dict[str, Any] = {}
    cursor.expect("{")
    while not cursor.accept("}"):
        if attrs:
            cursor.expect(",", "or '}' after an attribute")
        parse_entry(cursor, {}, attrs)
    return attrs


def _regions(cursor: Cursor, constants: Mapping[str, Any]) -> dict[str, Graph]:
    regions: dict[str, Graph] = {}
    cursor.expect("{", "before the regions")
    while not cursor.accept("}"):
        name = cursor.take("name", "a region name")
        if not is_identifier(name.text) or name.text in regions:
            cursor.fail(f"region {name.text!r} is given twice or is not a plain name", name)
        cursor.expect(":", "after a region name")
        regions[name.text] = _graph(cursor, constants)
    return regions
