"""``attnc dump``: a page, differences, Graphviz."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnc.compiler.cli.app import run

Captured = pytest.CaptureFixture[str]

GRAPH = """graph @scale(%x: f32[2, S]) sizes(S in [1, inf]) {
  %y: f32[2, S] = aten.mul.Tensor(%x, 3.0)  loc("model.py":4 "y = 3 * x")
  %z: f32[2, S] = aten.neg.default(%y)
  return %z
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dump of two passes, whose compile did not finish."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "00_captured.ir").write_text(GRAPH)
    (tmp_path / "d" / "01_halve.ir").write_text(GRAPH.replace("3.0)", "1.5)"))
    return tmp_path / "d"


def test_html_writes_one_page(folder: Path, capsys: Captured) -> None:
    assert run(["dump", "html", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'index.html'}\n"
    text = (folder / "index.html").read_text()
    assert text.startswith("<!doctype html>") and "01_halve" in text and "y = 3 * x" in text
    assert run(["dump", "html", str(folder)]) == 0
    assert sorted(file.name for file in folder.iterdir()) == ["00_captured.ir", "01_halve.ir", "index.html"]


def test_html_of_no_dump(tmp_path: Path, capsys: Captured) -> None:
    assert run(["dump", "html", str(tmp_path)]) == 1
    assert "no .ir files" in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_diff_of_files(folder: Path, capsys: Captured) -> None:
    left, right = (str(file) for file in sorted(folder.iterdir()))
    assert run(["dump", "diff", left, left]) == 0
    assert capsys.readouterr().out == "no difference\n"
    assert run(["dump", "diff", left, right]) == 1
    assert (
        "  - %y: f32[2, S] = aten.mul.Tensor(%x, 3.0)\n  + %y: f32[2, S] = aten.mul.Tensor(%x, 1.5)"
        in capsys.readouterr().out
    )


def test_diff_of_folders(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    other = tmp_path / "e"
    other.mkdir()
    for file in folder.iterdir():
        (other / file.name).write_text(file.read_text().replace("%y", "%other"))
    assert run(["dump", "diff", str(folder), str(other)]) == 0
    (other / "01_halve.ir").write_text(GRAPH)
    capsys.readouterr()
    assert run(["dump", "diff", str(folder), str(other)]) == 1
    assert capsys.readouterr().out.splitlines()[:2] == ["graph scale", "  pass 01_halve: 3 lines"]


def test_diff_of_a_file_and_a_folder(folder: Path, capsys: Captured) -> None:
    assert run(["dump", "diff", str(folder), str(folder / "00_captured.ir")]) == 1
    assert "one is a folder and one isn't" in capsys.readouterr().err


def test_dot(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    file = str(folder / "00_captured.ir")
    assert run(["dump", "dot", file]) == 0
    out = capsys.readouterr().out
    assert out.startswith('digraph "scale" {') and out.endswith("}\n")
    assert 'op0 -> op1 [label="%y: f32[2, S]"];' in out and 'op1 -> output [label="%z"];' in out
    assert run(["dump", "dot", file, "-o", str(tmp_path / "g.dot")]) == 0
    assert (tmp_path / "g.dot").read_text() == out
