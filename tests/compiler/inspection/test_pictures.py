"""Pictures against evaluating the mask pair by pair in plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from attnc.compiler.inspection.pictures import CELLS, EXACT, Album, Picture, numeric_sizes
from attnc.ir import Graph

Parsed = Callable[[str], Graph]
Mask = Callable[[int, int, int], bool]

MASKS: dict[str, Mask] = {
    "True": lambda h, q, k: True,
    "k <= q": lambda h, q, k: k <= q,
    "(k <= q) & (k - q > -21)": lambda h, q, k: k <= q and k - q > -21,
    "(k < 37) | (k <= q)": lambda h, q, k: k < 37 or k <= q,
    "k // 48 == q // 48": lambda h, q, k: k // 48 == q // 48,
    "(k - q) % 5 == h": lambda h, q, k: (k - q) % 5 == h,
    "k > q + 40": lambda h, q, k: k > q + 40,
}


def attention(mask: str, *, load: bool = False) -> str:
    shown = f"({mask}) & (t0[b, k] != 0)" if load else mask
    sides = "[%padding]" if load else "[]"
    return f"""
    graph @g(%q: f32[2, 3, Q, 64], %k: f32[2, 3, K, 64], %padding: i64[2, K]) sizes(Q in [1, inf], K in [1, inf]) {{
      %o: f32[2, 3, Q, 64] = attn.attention(%q, %k, %k, {sides}, []) {{
        q = [b, h, q, d], k = [b, h, k, d], v = [b, h, k, e], out = [b, h, q, e]
        qk = f32
        score = where({shown}, qk, -inf)
        visible = qk
        mask = {shown}
        fill = minus_inf
        softmax = plain f32
        out_dtype = f32
      }}
      return %o
    }}
    """


def drawn(graph: Graph, queries: int, keys: int) -> Picture:
    album = Album({"Q": queries, "K": keys}, {"padding": "attention_mask"})
    assert album.add(graph.ops[0]) == 0
    return album.pictures[0]


def expected(mask: Mask, head: int, picture: Picture, *, load: bool) -> list[str]:
    """Every cell, from every pair."""
    (queries, keys), (bm, bn), (cm, cn) = picture.lengths, picture.block, picture.cell
    seen = [[mask(head, q, k) for k in range(keys)] for q in range(queries)]

    def area(q: int, k: int, rows: int, columns: int) -> str:
        pairs = [pair for row in seen[q : q + rows] for pair in row[k : k + columns]]
        return "0" if not any(pairs) else "3" if all(pairs) and not load else "2"

    if (cm, cn) != (1, 1):
        return ["".join(area(q, k, cm, cn) for k in range(0, keys, cn)) for q in range(0, queries, cm)]
    tiles = {(i, j): area(i * bm, j * bn, bm, bn) for i in range(queries) for j in range(keys)}
    kinds = [[tiles[q // bm, k // bn] for k in range(keys)] for q in range(queries)]
    return [
        "".join(kind if kind == "0" or seen[q][k] else "1" for k, kind in enumerate(row)) for q, row in enumerate(kinds)
    ]


@pytest.mark.parametrize("load", [False, True])
@pytest.mark.parametrize("text", MASKS)
def test_every_cell_is_what_its_pairs_say(text: str, load: bool, parsed: Parsed) -> None:
    graph = parsed(attention(text, load=load))
    draw = random.Random(f"{text}{load}")
    for longest in (EXACT, 300):
        queries, keys = draw.randint(longest // 2 + 1, longest), draw.randint(1, longest)
        picture = drawn(graph, queries, keys)
        assert picture.cell == ((1, 1) if longest == EXACT else picture.block)
        heads = [int(panel.title.removeprefix("h = ") or 0) for panel in picture.panels]
        assert heads == ([0, 1, 2] if "h" in text else [0])
        for head, panel in zip(heads, picture.panels, strict=True):
            assert list(panel.rows) == expected(MASKS[text], head, picture, load=load)


def test_many_tiles_share_a_cell(parsed: Parsed) -> None:
    """Squares of tiles are skipped or full only where all of their tiles are."""
    picture = drawn(parsed(attention("(k <= q) & (k - q > -4000)")), 9000, 100)
    assert picture.cell == (2 * picture.block[0], picture.block[1]) and len(picture.panels[0].rows) <= CELLS
    mask: Mask = lambda h, q, k: k <= q and k - q > -4000  # noqa: E731
    assert list(picture.panels[0].rows) == expected(mask, 0, picture, load=False)


def test_loaded_conditions_are_named(parsed: Parsed) -> None:
    picture = drawn(parsed(attention("k <= q", load=True)), 20, 20)
    assert picture.loaded == "attention_mask[b, k] != 0"
    assert "where coloured, attention_mask[b, k] != 0 decides" in picture.caption()
    assert drawn(parsed(attention("k <= q")), 20, 20).loaded == ""


def test_equal_masks_share_a_picture_and_other_lengths_do_not(parsed: Parsed) -> None:
    album = Album({"Q": 30, "K": 31}, {})
    causal = parsed(attention("k <= q"))
    assert [album.add(graph.ops[0]) for graph in (causal, parsed(attention("q >= k")))] == [0, 0]
    assert album.add(parsed(attention("k < q")).ops[0]) == 1
    assert len(album.pictures) == 2


def test_a_size_without_value_is_no_error(parsed: Parsed) -> None:
    assert Album({"Q": 30}, {}).add(parsed(attention("k <= q")).ops[0]) is None


def test_sizes_without_examples_stay_within_their_bounds(parsed: Parsed) -> None:
    graph = parsed(
        "graph @g(%x: f32[A, B, C, D]) sizes(A in [1, 9], B in [300, inf], C in [1, inf], D in [2, 5]) {\n return %x\n}"
    )
    assert numeric_sizes(graph, {"D": 3}) == {"A": 9, "B": 300, "C": 256, "D": 3}
