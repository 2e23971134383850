"""Passes as edits: applied in order they give back every pass."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from attnc.compiler.inspection.listing import Listing, Step, pass_data, steps
from attnc.ir import Graph

ROWS = st.lists(st.integers(0, 9), max_size=30)


def applied(before: list[int], edits: list[Step]) -> list[int]:
    after: list[int] = []
    at = 0
    for kind, what in edits:
        if isinstance(what, list):
            after += what
        else:
            after += before[at : at + what] if kind == "=" else []
            at += what
    assert at == len(before)
    return after


@given(ROWS, ROWS)
def test_edits_lead_from_one_to_the_other(before: list[int], after: list[int]) -> None:
    assert applied(before, steps(before, after)) == after


def test_rows_are_shared_by_passes_and_split_by_place(
    model: Callable[..., str], parsed: Callable[[str], Graph]
) -> None:
    graph = parsed(model(2))
    listing = Listing()
    data = pass_data(listing, [("a", graph), ("b", parsed(model(2))), ("c", parsed(model(3)))])
    assert data[1]["steps"] == [("=", len(graph.ops) + 2)]
    assert [data[i]["ops"] for i in (0, 2)] == [len(graph.ops), len(graph.ops) + 7]
    assert len(listing.rows) == len(set(listing.rows)) == len(graph.ops) + 2 + 7 + 1  # a layer, another return
    text, place = listing.rows[next(i for i, (text, _) in enumerate(listing.rows) if text.startswith("%l1p"))]
    assert "loc(" not in text and listing.places[place] == ("model.py", 11, "p = softmax(scores)", "layers.1")


def test_the_same_op_elsewhere_is_another_row(model: Callable[..., str], parsed: Callable[[str], Graph]) -> None:
    """A trap: ops of equal text from other lines must not be shown with the first one's line."""
    listing = Listing()
    listing.add(parsed(model(1)))
    count = len(listing.rows)
    listing.add(parsed(model(1, code="other line")))
    assert len(listing.rows) == count + 6
