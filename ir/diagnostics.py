"""Errors and their rendering.

A message has four parts: what was being done, which op (with the user's file and line), what is wrong, and what to do
next. The parts are fields here, so that a report, a terminal and an exception show the same thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnc.ir.values import Location, Op

if TYPE_CHECKING:
    from attnc.ir.graph import Graph


class AttncError(Exception):
    """Base class of every error raised on purpose."""


@dataclass(frozen=True)
class Diagnostic:
    """One problem. ``op`` anchors it in a graph's text; without one it concerns the graph as a whole."""

    severity: str
    """``error``, ``warning`` or ``note``."""
    code: str
    message: str
    loc: Location = Location()
    hint: str = ""
    op: Op | None = None

    def render(self) -> str:
        """The problem with its op and location, one to four lines."""
        lines = [f"{self.severity}[{self.code}]: {self.message}"]
        if self.op is not None:
            lines.append(f"  in: {_op_text(self.op).splitlines()[0]}")
        if self.loc.file:
            module = f" in {self.loc.module}" if self.loc.module else ""
            lines.append(f"  at: {self.loc}{module}")
        if self.hint:
            lines.append(f"  try: {self.hint}")
        return "\n".join(lines)


class PrintError(AttncError):
    """Something has no text form."""


class ParseError(AttncError):
    """Text that isn't IR. ``line`` and ``column`` count from 1."""

    def __init__(self, message: str, *, source: str, line: int, column: int, line_text: str) -> None:
        self.message, self.source, self.line, self.column = message, source, line, column
        caret = " " * (column - 1) + "^"
        super().__init__(f"reading IR from {source}, line {line}, column {column}: {message}\n  {line_text}\n  {caret}")


class VerifyError(AttncError):
    """A graph breaks the rules of the IR. ``diagnostics`` lists every problem found."""

    def __init__(self, graph: Graph, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        count = "1 problem" if len(self.diagnostics) == 1 else f"{len(self.diagnostics)} problems"
        body = "\n".join(d.render() for d in self.diagnostics)
        super().__init__(f"verifying graph @{graph.name}: {count}\n{body}")
        self.add_note(render(graph, self.diagnostics, context=2))


def render(graph: Graph, diagnostics: Sequence[Diagnostic], context: int | None = None) -> str:
    """The graph's text with each message under its op.

    ``context`` keeps only that many ops before and after an op with a message; None keeps all.
    """
    from attnc.ir.printer import print_header

    anchored = {d.op for d in diagnostics}
    keep = _kept(graph, anchored, context)
    lines = [_header_text(print_header, graph), *(f"  {_message(d)}" for d in diagnostics if d.op not in graph.ops)]
    last = -1
    for index in keep:
        if index != last + 1:
            lines.append("  ...")
        op, last = graph.ops[index], index
        text = _op_text(op)
        lines.append(_indent(text))
        lines += [_caret(text, d) for d in diagnostics if d.op is op]
    if last != len(graph.ops) - 1:
        lines.append("  ...")
    return "\n".join([*lines, "}"])


def _kept(graph: Graph, anchored: set[Op | None], context: int | None) -> list[int]:
    if context is None:
        return list(range(len(graph.ops)))
    marks = [i for i, op in enumerate(graph.ops) if op in anchored]
    near = {i for m in marks for i in range(m - context, m + context + 1)}
    return sorted(i for i in near if 0 <= i < len(graph.ops))


def _header_text(print_header: object, graph: Graph) -> str:
    assert callable(print_header)
    try:
        return str(print_header(graph))
    except PrintError:
        return f"graph @{graph.name}(<unprintable>) {{"


def _op_text(op: Op) -> str:
    from attnc.ir.printer import print_op

    try:
        return print_op(op)
    except PrintError as error:
        return f"{op.name}(<unprintable: {error}>)"


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _caret(text: str, diagnostic: Diagnostic) -> str:
    width = min(len(text.split("\n")[0]), 100)
    return f"  {'^' * width}\n  {_message(diagnostic)}"


def _message(diagnostic: Diagnostic) -> str:
    hint = f" ({diagnostic.hint})" if diagnostic.hint else ""
    return f"{diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}{hint}"
