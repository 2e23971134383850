"""Graphs compared whatever their values are called: renamed graphs are equal, any other change shows."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from attnc.compiler.inspection.compare import compare_dumps, compare_graphs
from attnc.compiler.inspection.folder import DumpError, read_dump
from attnc.compiler.report import Report
from attnc.ir import Graph

Model = Callable[..., str]
Parsed = Callable[[str], Graph]
Dumped = Callable[..., Report]


def renamed(text: str, seed: int) -> str:
    """Every value under another name, taken from the graph's own names where a check by name would be fooled."""
    names = sorted(set(re.findall(r"%(\w+)", text)))
    others = names[:]
    random.Random(seed).shuffle(others)
    table = dict(zip(names, others, strict=True))
    return re.sub(r"%(\w+)", lambda m: f"%{table[m[1]]}", text)


@pytest.mark.parametrize("seed", range(5))
def test_renamed_graphs_do_not_differ(seed: int, model: Model, parsed: Parsed) -> None:
    text = model(3, window=4)
    assert renamed(text, seed) != text
    assert compare_graphs(parsed(text), parsed(renamed(text, seed))) == []


def test_moved_lines_do_not_differ(model: Model, parsed: Parsed) -> None:
    text = model(2)
    assert compare_graphs(parsed(text), parsed(text.replace('"model.py":1', '"elsewhere.py":3'))) == []


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_changed_number_is_one_op(seed: int | None, model: Model, parsed: Parsed) -> None:
    text = model(4)
    other = text.replace("%l2s, 0.25", "%l2s, 0.5")
    found = compare_graphs(parsed(text), parsed(other if seed is None else renamed(other, seed)))
    assert found == [
        "~ %l2c = aten.mul.Tensor  (model.py:12 layers.2)",
        "  - %l2c: f32[2, 4, S, S] = aten.mul.Tensor(%l2s, 0.25)",
        "  + %l2c: f32[2, 4, S, S] = aten.mul.Tensor(%l2s, 0.5)",
    ]


def test_a_swapped_operand_shows(parsed: Parsed) -> None:
    text = "graph @g(%x: f32[3], %y: f32[3]) {\n %z: f32[3] = aten.sub.Tensor(%x, %y)\n return %z\n}"
    found = compare_graphs(parsed(text), parsed(text.replace("(%x, %y)\n r", "(%y, %x)\n r")))
    assert found == [
        "~ %z = aten.sub.Tensor: value 0 is %x, then %y",
        "~ %z = aten.sub.Tensor: value 1 is %y, then %x",
    ]
    twice = compare_graphs(parsed(text), parsed(text.replace("(%x, %y)\n r", "(%x, %x)\n r")))
    assert twice == ["~ %z = aten.sub.Tensor: value 1 is %y, then %x"]


def test_an_op_more_is_one_op_and_its_readers(model: Model, parsed: Parsed) -> None:
    text = model(2)
    line = "  %l1y: f32[2, 4, S, 8] = aten.tanh.default(%l1o)"
    more = text.replace(line, "  %e: f32[2, 4, S, 8] = aten.neg.default(%l1o)\n" + line.replace("%l1o", "%e"))
    assert compare_graphs(parsed(text), parsed(more)) == [
        "+ %e: f32[2, 4, S, 8] = aten.neg.default(%l1o)",
        "~ %l1y = aten.tanh.default: value 0 is %l1o, then %e",
    ]
    assert compare_graphs(parsed(more), parsed(text))[0].startswith("- %e: ")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("S in [1, inf]", "S in [2, inf]", "~ sizes: "),
        ("%v: f32[2, 4, S, 8]", "%v: f32[2, 1, S, 8]", "~ input 1: f32[2, 4, S, 8], then f32[2, 1, S, 8]"),
        ("return %l1y", "return %l0y", "~ the graph's result: value 0 is %l1y, then %l0y"),
        ("return %l1y", "return %l1y, %l0y", "~ the graph's result: reads 1 values, then 2"),
    ],
)
def test_what_is_around_the_ops(old: str, new: str, line: str, model: Model, parsed: Parsed) -> None:
    text = model(2)
    (found,) = compare_graphs(parsed(text), parsed(text.replace(old, new)))
    assert found.startswith(line)


def test_dumps_of_the_same_graph_do_not_differ(tmp_path: Path, model: Model, parsed: Parsed, dumped: Dumped) -> None:
    for name, seed in (("a", 7), ("b", 8)):
        dumped(parsed(renamed(model(2), seed)), tmp_path / name, {"S": 9})
    assert compare_dumps(read_dump(tmp_path / "a"), read_dump(tmp_path / "b")) == []


def test_dumps_of_other_masks(tmp_path: Path, model: Model, parsed: Parsed, dumped: Dumped) -> None:
    dumped(parsed(model(1)), tmp_path / "a", {"S": 9})
    dumped(parsed(model(1, window=3)), tmp_path / "b", {"S": 9})
    lines = compare_dumps(read_dump(tmp_path / "a"), read_dump(tmp_path / "b"))
    assert lines[:2] == ["graph g", "  pass 00_captured: 4 lines"]
    assert "  pass 01_canonicalize: the same differences" in lines
    assert "      -   mask = k <= q" in lines and "      +   mask = (k <= q) & (k - q > -3)" in lines
    assert "  ~ site 0 layers.0 model.py:10, mask: k <= q, then (k <= q) & (k - q > -3)" in lines
    assert any(line.startswith("  ~ site 0 layers.0 model.py:10, kernel: flash_f32_d8_masked, then ") for line in lines)


def test_a_site_no_longer_fused(tmp_path: Path, model: Model, parsed: Parsed, dumped: Dumped) -> None:
    """Returning the weights keeps one attention with the host."""
    dumped(parsed(model(2)), tmp_path / "a", {"S": 9})
    dumped(parsed(model(2).replace("return %l1y", "return %l1y, %l1p")), tmp_path / "b", {"S": 9})
    lines = compare_dumps(read_dump(tmp_path / "a"), read_dump(tmp_path / "b"))
    (line,) = [line for line in lines if line.lstrip(" ~").startswith("site")]
    assert line.startswith("  site 1 layers.1 model.py:11: fused, then ATTNC-WEIGHTS-USED (")


def test_a_dump_that_did_not_finish(tmp_path: Path, model: Model, parsed: Parsed, dumped: Dumped) -> None:
    dumped(parsed(model(1)), tmp_path / "a", {"S": 9})
    dumped(parsed(model(1)), tmp_path / "b", {"S": 9}, finish=False)
    lines = compare_dumps(read_dump(tmp_path / "a"), read_dump(tmp_path / "b"))
    assert lines == ["graph g", "  report: only in the first; the other did not finish"]


def test_graphs_and_passes_of_one_dump_only(tmp_path: Path, model: Model, parsed: Parsed, dumped: Dumped) -> None:
    for _ in range(2):
        dumped(parsed(model(1)), tmp_path / "a", {"S": 9})
    dumped(parsed(model(1)), tmp_path / "b", {"S": 9})
    two, one = read_dump(tmp_path / "a"), read_dump(tmp_path / "b")
    assert compare_dumps(two, one) == [f"graph g: only in {two[1].folder}"]
    next(one[0].folder.glob("*_clean-up.ir")).unlink()
    (_, line) = compare_dumps(two[:1], read_dump(tmp_path / "b"))
    assert re.fullmatch(r"  pass \d\d_clean-up: only in the first", line)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [("report.json", '{"version": 0}', "of another version"), ("sites.json", "[]", "of another version")],
)
def test_what_is_no_dump_says_so(name: str, text: str, message: str, tmp_path: Path, model: Model) -> None:
    with pytest.raises(DumpError, match="no such folder"):
        read_dump(tmp_path / "absent")
    with pytest.raises(DumpError, match=r"no \.ir files"):
        read_dump(tmp_path)
    (tmp_path / "00_captured.ir").write_text(model(1))
    assert read_dump(tmp_path)[0].name == "g"
    (tmp_path / name).write_text(text)
    with pytest.raises(DumpError, match=message):
        read_dump(tmp_path)


def test_two_kernels_of_one_name_are_two_files(tmp_path: Path, parsed: Parsed, dumped: Dumped, model: Model) -> None:
    """Two masks, one head size: kernels are named for people, and these two alike."""
    text = model(1).replace("return %l0y\n}\n", "")
    second = model(1, window=3).split("{\n", 1)[1]
    for name in ("row", "q", "k", "hidden", *re.findall(r"%(l0\w)", second), "start", "far", "late"):
        second = re.sub(rf"%{name}\b", f"%z{name}", second)
    dumped(parsed(text + second.replace("return", "return %l0y,")), tmp_path, {"S": 9})
    (dump,) = read_dump(tmp_path)
    assert len(dump.kernels) == 2 and len({a.kernel for a in dump.attentions}) == 2
    assert [a.picture for a in dump.attentions] == [0, 1]
