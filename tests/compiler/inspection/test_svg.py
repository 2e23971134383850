"""Rectangles cover exactly the cells of their kind."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from attnc.compiler.inspection.pictures import Panel, Picture
from attnc.compiler.inspection.svg import rectangles, symbol

GRIDS = st.integers(1, 7).flatmap(lambda n: st.lists(st.text("0123", min_size=n, max_size=n), min_size=1, max_size=7))


@given(GRIDS, st.sampled_from("0123"))
def test_rectangles_cover_their_cells_once(rows: list[str], kind: str) -> None:
    covered = [(x + i, y + j) for x, y, w, h in rectangles(rows, kind) for i in range(w) for j in range(h)]
    assert sorted(covered) == sorted((x, y) for y, row in enumerate(rows) for x, cell in enumerate(row) if cell == kind)


def test_equal_rows_are_one_rectangle() -> None:
    assert list(rectangles(["0022", "0022", "0222"], "2")) == [(2, 0, 2, 2), (1, 2, 3, 1)]


def test_a_symbol_is_well_formed_and_keeps_proportions() -> None:
    panels = (Panel("h = 0 <&>", ("03", "22")), Panel("h = 1", ("33", "02")))
    root = ElementTree.fromstring(symbol(Picture((90, 120), (48, 64), (48, 64), (), "", panels), "p"))
    assert root.get("id") == "p" and root.get("viewBox") == "0 0 246 90"
    first, second = root.findall("svg")
    assert (first.get("width"), first.get("height"), first.get("viewBox")) == ("120", "90", "0 0 1.875 1.875")
    assert second.get("x") == "126"
    assert [path.get("class") for path in first.findall("path")] == ["cell0", "cell2", "cell3"]
    title = first.find("title")
    assert title is not None and title.text == "h = 0 <&>"


def test_single_pairs_show_the_borders_of_tiles() -> None:
    rows = tuple("1" * 100 for _ in range(100))
    text = symbol(Picture((100, 100), (48, 64), (1, 1), (), "", (Panel("", rows),)), "p")
    assert re.findall(r'class="grid" d="([^"]*)"', text) == ["M0 48h100M0 96h100M64 0v100"]
