"""Graphs as text; ``ir.parser`` reads it back to an equal graph. The grammar is in docs/ir.md.

Everything a graph means is in the text. ``Op.meta`` and payloads of large constants belong to the host and are not.
"""

from __future__ import annotations

from attnc.ir.argtext import show_arg, show_kwargs, show_location
from attnc.ir.attention import AttentionSpec
from attnc.ir.constants import show_constant
from attnc.ir.diagnostics import PrintError
from attnc.ir.graph import Graph, SizeInfo
from attnc.ir.lexer import is_identifier, is_op_name, show_name
from attnc.ir.spectext import show_spec
from attnc.ir.typetext import show_type
from attnc.ir.values import Op, Value

WIDTH = 120
"""A header longer than this has one input a line."""


def print_graph(graph: Graph, *, locations: bool = True) -> str:
    """The text of a graph, ending in a newline; without ``locations`` it is shorter, and reads back without them.

    Raises PrintError where something in it has no text form.
    """
    lines = [print_header(graph)]
    lines += [f"  {show_constant(graph, name)}" for name in graph.constants]
    lines += [f"  {line}" for op in graph.ops for line in print_op(op, locations=locations).split("\n")]
    outputs = ", ".join(map(show_arg, graph.outputs))
    lines += [f"  return {outputs}".rstrip(), "}"]
    return "\n".join(lines) + "\n"


def print_header(graph: Graph) -> str:
    """``graph @name(%x: type, …) sizes(B in [2, 1024]) {``. Raises PrintError."""
    inputs = [show_value(v) for v in graph.inputs]
    head = f"graph {show_name('@', graph.name)}"
    sizes = ", ".join(_show_size(name, info) for name, info in graph.sizes.items())
    tail = f" sizes({sizes}) {{" if sizes else " {"
    line = f"{head}({', '.join(inputs)}){tail}"
    if len(line) <= WIDTH or not inputs:
        return line
    return f"{head}(\n" + "".join(f"    {i},\n" for i in inputs[:-1]) + f"    {inputs[-1]}\n  ){tail}"


def _show_size(name: str, info: SizeInfo) -> str:
    if not is_identifier(name):
        raise PrintError(f"size name {name!r} is not an identifier")
    return f"{name} in [{info.lo}, {'inf' if info.hi is None else info.hi}]"


def show_value(value: Value) -> str:
    """``%name: type``. Raises PrintError."""
    return f"{show_name('%', value.name)}: {show_type(value.type)}"


def print_op(op: Op, *, locations: bool = True) -> str:
    """The text of an op without indentation; several lines where it has an attention's attribute or regions.

    Raises PrintError.
    """
    if not is_op_name(op.name):
        raise PrintError(f"op name {op.name!r} is not a dialect, a dot and a name")
    results = ", ".join(map(show_value, op.results))
    arguments = ", ".join([*map(show_arg, op.args), *show_kwargs(op.kwargs)])
    parts = [
        f"{results} = " if results else "",
        f"{op.name}({arguments})",
        _show_attributes(op),
        _show_regions(op, locations),
    ]
    location = show_location(op.loc) if locations else ""
    return "".join(parts) + (f"  {location}" if location else "")


def _show_attributes(op: Op) -> str:
    if not op.attrs:
        return ""
    specs = [value for value in op.attrs.values() if isinstance(value, AttentionSpec)]
    if not specs:
        return f" {{{', '.join(show_kwargs(op.attrs, ' = '))}}}"
    if list(op.attrs) != ["spec"]:
        raise PrintError(f"{op.name}: an attention's attribute must be named spec and stand alone")
    return " {\n" + "".join(f"  {line}\n" for line in show_spec(specs[0])) + "}"


def _show_regions(op: Op, locations: bool) -> str:
    if not op.regions:
        return ""
    lines = []
    for name, region in op.regions.items():
        if not is_identifier(name):
            raise PrintError(f"region name {name!r} is not an identifier")
        lines += f"{name}: {print_graph(region, locations=locations)}".rstrip().split("\n")
    return " regions {\n" + "".join(f"  {line}\n" for line in lines) + "}"
