"""A picture as inline SVG: one path for each class of cells; colours are the page's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from attnc.compiler.inspection.pictures import HIDDEN, SKIP, Panel, Picture

GAP = 0.05
"""Space between panels, in panels."""


def symbol(picture: Picture, name: str) -> str:
    """``<symbol id=name>``, to be drawn any number of times by ``<use>``; a pair is one unit."""
    (queries, keys), count = picture.lengths, len(picture.panels)
    gap = GAP * keys
    panels = "".join(
        f'<svg x="{i * (keys + gap):g}" width="{keys}" height="{queries}" preserveAspectRatio="none" '
        f'viewBox="0 0 {keys / picture.cell[1]:g} {queries / picture.cell[0]:g}">{_panel(panel)}'
        f"{_grid(picture, panel)}</svg>"
        for i, panel in enumerate(picture.panels)
    )
    view = f"0 0 {count * keys + (count - 1) * gap:g} {queries}"
    return f'<symbol id="{name}" viewBox="{view}" preserveAspectRatio="xMinYMin">{panels}</symbol>'


def _panel(panel: Panel) -> str:
    width, height = len(panel.rows[0]), len(panel.rows)
    title = f"<title>{escape(panel.title)}</title>" if panel.title else ""
    parts = [title, f'<path class="cell{SKIP}" d="M0 0h{width}v{height}h-{width}z"/>']
    for kind in sorted({cell for row in panel.rows for cell in row} - {str(SKIP)}):
        path = "".join(f"M{x} {y}h{w}v{h}h-{w}z" for x, y, w, h in rectangles(panel.rows, kind))
        parts.append(f'<path class="cell{kind}" d="{path}"/>')
    return "".join(parts)


def _grid(picture: Picture, panel: Panel) -> str:
    """The borders of tiles, where cells are single pairs."""
    if picture.cell != (1, 1) or not any(str(HIDDEN) in row for row in panel.rows):
        return ""
    width, height = len(panel.rows[0]), len(panel.rows)
    lines = [f"M0 {y}h{width}" for y in range(picture.block[0], height, picture.block[0])]
    lines += [f"M{x} 0v{height}" for x in range(picture.block[1], width, picture.block[1])]
    return f'<path class="grid" d="{"".join(lines)}"/>' if lines else ""


def rectangles(rows: Sequence[str], kind: str) -> Iterator[tuple[int, int, int, int]]:
    """Disjoint rectangles (x, y, width, height) that cover the cells of one kind: equal runs of rows are merged."""
    open_runs: dict[tuple[int, int], int] = {}
    for y, row in enumerate((*rows, "")):
        runs = set(_runs(row, kind))
        for run in [r for r in open_runs if r not in runs]:
            top = open_runs.pop(run)
            yield run[0], top, run[1], y - top
        for run in runs:
            open_runs.setdefault(run, y)


def _runs(row: str, kind: str) -> Iterator[tuple[int, int]]:
    """Start and length of each run of ``kind``."""
    start = 0
    for cell, group in groupby(row):
        length = len(list(group))
        if cell == kind:
            yield start, length
        start += length
