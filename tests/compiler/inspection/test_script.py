"""The page's script where it knows no document: what is found, what is folded, what is marked. Run by node."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import pytest

from attnc.compiler.inspection.listing import steps

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node on PATH")

ROWS = [
    ["graph @g(%x: f32[2]) {", 0],
    ["%a: f32[2] = aten.neg.default(%x)", 1],
    ["%b: f32[2] = aten.exp.default(%a)", 2],
]
PLACES = [["", 0, "", ""], ["/far/model.py", 7, "a = -X", "layers.0"], ["/far/model.py", 8, "b = a.exp()", "layers.1"]]


def call(expression: str) -> Any:
    """The value of a JavaScript expression over the page's functions."""
    assert NODE is not None
    script = files("attnc.compiler.inspection").joinpath("page.js").read_text(encoding="utf-8")
    code = f"const F = (() => {{ const module = {{}}; {script}; return module.exports; }})();"
    done = subprocess.run(
        [NODE, "-e", f"{code} console.log(JSON.stringify({expression}))"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_search_wants_every_word_somewhere() -> None:
    queries = ["aten", "EXP", "model.py:7", "layers.1 exp", "layers.0 exp", "-x neg", "  ", "graph"]
    found = call(f"{json.dumps(queries)}.map((q) => [...F.findRows({json.dumps(ROWS)}, {json.dumps(PLACES)}, q)])")
    assert found == [[1, 2], [2], [1], [2], [], [1], [], [0]]


def test_passes_are_replayed_from_their_edits() -> None:
    orders = [[0, 1, 2, 3], [0, 4, 2, 3], [0, 4, 2, 3, 1]]
    passes = [{"steps": steps(before, after)} for before, after in zip([[], *orders], orders, strict=False)]
    first, second, third = call(f"F.replay({json.dumps(passes)})")
    assert first == [["=", row] for row in orders[0]]
    assert second == [["=", 0], ["-", 1], ["+", 4], ["=", 2], ["=", 3]]
    assert third == [["=", 0], ["=", 4], ["=", 2], ["=", 3], ["+", 1]]


def test_what_did_not_change_is_folded_around_changes_and_hits() -> None:
    rows = [["=", i] for i in range(20)]
    rows[10] = ["-", 10]

    def runs(hits: list[int], opened: list[list[int]]) -> Any:
        return call(f"F.runs({json.dumps(rows)}, new Set({hits}), {opened})")

    assert runs([], []) == [[0, 8, True], [8, 13, False], [13, 20, True]]
    assert runs([1], []) == [[0, 4, False], [4, 8, True], [8, 13, False], [13, 20, True]]
    assert runs([5], []) == [[0, 3, True], [3, 13, False], [13, 20, True]]
    assert runs([17], []) == [[0, 8, True], [8, 13, False], [13, 15, True], [15, 20, False]]
    assert runs([], [[0, 8], [13, 20]]) == [[0, 20, False]]
    assert call("F.runs([], new Set(), [])") == []


def test_one_hidden_row_is_not_worth_a_fold() -> None:
    rows = [["-", 0], *(["=", i] for i in range(1, 6)), ["-", 6]]
    assert call(f"F.runs({json.dumps(rows)}, new Set(), [])") == [[0, 3, False], [3, 4, False], [4, 7, False]]


@pytest.mark.parametrize(
    ("text", "words", "pieces"),
    [
        ("aten.neg", ["neg"], [["aten.", False], ["neg", True]]),
        ("Aaa", ["aa"], [["Aaa", True]]),
        ("a+b", ["x"], [["a+b", False]]),
        ("a+b", [], [["a+b", False]]),
    ],
)
def test_marks(text: str, words: list[str], pieces: list[Any]) -> None:
    assert call(f"F.marked({json.dumps(text)}, {json.dumps(words)})") == pieces


def test_attentions_are_told_from_their_readers() -> None:
    rows = [
        "%attention_1: f32[2, S] = attn.attention(%x, %x, %v, [], []) {\n  mask = k <= q\n}",
        '%"odd name": f32[2] = attn.attention(%x) {',
        "%y: f32[2] = aten.tanh.default(%attention_1)",
        "%z: f32[2] = aten.neg.default(%y)\n%w: f32[2] = attn.attention(%z)",
    ]
    assert call(f"{json.dumps(rows)}.map(F.attentionOf)") == ["attention_1", "odd name", "", ""]
