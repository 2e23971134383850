"""Prints what was measured: families, obstacles, and everything that is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.coverage.exceptions import CONTENT, UNROTATED
from benchmarks.coverage.results import Result
from benchmarks.coverage.tally import Obstacle, Row, by_family, complaints, obstacles, total

EXAMPLES = 6


def render(results: Sequence[Result], console: Console) -> None:
    """Print tables and complaints."""
    console.print(family_table(results))
    if left := obstacles(results):
        console.print(obstacle_table(left))
    found = complaints(results)
    _list(console, "no measurement", found.ended, "bold red")
    _list(console, "WRONG OUTPUTS", found.wrong, "bold red")
    _list(console, "ATTENTIONS COUNTED DIFFER FROM THE LIST (benchmarks/coverage/models.json)", found.differing, "red")
    _list(console, "REPORTS AND PROFILER DISAGREE", found.misreported, "bold red")
    _list(console, "not judged", found.unjudged, "yellow")
    _list(console, "attnc sees attentions beyond those counted", found.beyond, "yellow")
    _list(console, "rotary models without a proved rotation", _with_reasons(found.unrotated, UNROTATED), "yellow")
    _list(console, "relative biases read as dense tensors", _with_reasons(found.dense, CONTENT), "yellow")
    _list(console, "outputs that would not show a planted error", found.blind, "yellow")


def family_table(results: Sequence[Result]) -> Table:
    """A row a family, and their sum."""
    table = Table(title="attentions fused, by family", title_justify="left")
    table.add_column("family")
    for heading in ("models", "sites", "fused", ""):
        table.add_column(heading, justify="right")
    table.add_column("left to the host", overflow="fold")
    for name, row in by_family(results).items():
        table.add_row(*_cells(name, row))
    table.add_section()
    table.add_row(*_cells("all", total(results)), style="bold")
    return table


def obstacle_table(found: Sequence[Obstacle]) -> Table:
    """A row for each code and operator."""
    table = Table(title="what stood in the way", title_justify="left")
    table.add_column("sites", justify="right")
    for heading in ("code", "operator or reason", "models", "first example"):
        table.add_column(heading, overflow="fold")
    for o in found:
        more = f", … ({len(o.models)})" if len(o.models) > EXAMPLES else ""
        models = ", ".join(o.models[:EXAMPLES]) + more
        table.add_row(str(o.sites), *map(Text, (o.code, o.what, models, o.example)))
    return table


def _cells(name: str, row: Row) -> tuple[str, ...]:
    left = ", ".join(f"{count} {code}" for code, count in row.left.most_common())
    return name, str(row.models), str(row.sites), str(row.fused), f"{row.share:.1%}", left


def _with_reasons(names: Sequence[str], known: Mapping[str, str]) -> list[str]:
    return [f"{name}: {known[name]}" if name in known else name for name in names]


def _list(console: Console, title: str, entries: Sequence[str], style: str) -> None:
    if entries:
        console.print(Text(f"{title}: {len(entries)}", style=style))
        for entry in entries:
            console.print(Text(f"  {entry}"))
