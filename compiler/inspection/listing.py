"""The passes of a dump as rows of text and as edits from each pass to the next: the data of the page.

Rows are numbered once for the whole page, so a line that ten passes share is written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from attnc.ir.argtext import show_arg
from attnc.ir.constants import show_constant
from attnc.ir.graph import Graph
from attnc.ir.printer import print_header, print_op
from attnc.ir.values import Location

Step = tuple[str, int] | tuple[str, list[int]]
"""``("=", n)`` keeps the next n rows of the pass before, ``("-", n)`` drops them, ``("+", [row, …])`` adds rows."""


class Listing:
    """Distinct rows (text, place) and places (file, line, source text, module)."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int]] = []
        self.places: list[tuple[str, int, str, str]] = []
        self._row_numbers: dict[tuple[str, int], int] = {}
        self._place_numbers: dict[Location, int] = {}

    def add(self, graph: Graph) -> list[int]:
        """The numbers of a graph's rows: header, constants, one row an op, outputs."""
        return [self._row(text, self._place(loc)) for text, loc in graph_rows(graph)]

    def _row(self, text: str, place: int) -> int:
        number = self._row_numbers.setdefault((text, place), len(self.rows))
        if number == len(self.rows):
            self.rows.append((text, place))
        return number

    def _place(self, loc: Location) -> int:
        number = self._place_numbers.setdefault(loc, len(self.places))
        if number == len(self.places):
            self.places.append((loc.file, loc.line, loc.code, loc.module))
        return number


def graph_rows(graph: Graph) -> Iterator[tuple[str, Location]]:
    """The text of a graph without locations, row by row, and where each row comes from."""
    yield print_header(graph), Location()
    yield from ((show_constant(graph, name), Location()) for name in graph.constants)
    yield from ((print_op(op, locations=False), op.loc) for op in graph.ops)
    yield f"return {', '.join(map(show_arg, graph.outputs))}".rstrip(), Location()


def steps(before: Sequence[int], after: Sequence[int]) -> list[Step]:
    """The edits that turn ``before`` into ``after``, from the top."""
    found: list[Step] = []
    for tag, i, j, m, n in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            found.append(("=", j - i))
        else:
            found += [("-", j - i)] if j > i else []
            found += [("+", list(after[m:n]))] if n > m else []
    return found


def pass_data(listing: Listing, passes: Sequence[tuple[str, Graph]]) -> list[dict[str, Any]]:
    """For JSON: each pass's label, its number of ops and its edits from the pass before."""
    data: list[dict[str, Any]] = []
    before: list[int] = []
    for label, graph in passes:
        after = listing.add(graph)
        data.append({"label": label, "ops": len(graph.ops), "steps": steps(before, after)})
        before = after
    return data
