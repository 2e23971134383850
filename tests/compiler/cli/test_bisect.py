"""``attnc bisect``: statuses, inputs, and what it says of a wrong pass."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy
import pytest

from attnc.compiler.cli.app import run
from attnc.compiler.passes.base import Context
from attnc.ir import Graph

Captured = pytest.CaptureFixture[str]

GRAPH = """graph @scale(%x: f32[2, S]) sizes(S in [1, inf]) {
  %y: f32[2, S] = aten.mul.Tensor(%x, 3.0)  loc("model.py":4 "y = 3 * x" in "layers.0")
  return %y
}
"""


class Halves:
    """A pass that changes a constant."""

    name: ClassVar[str] = "halves"

    def run(self, graph: Graph, context: Context) -> bool:
        for op in graph.ops:
            if op.name == "aten.mul.Tensor" and op.args[1] == 3.0:
                op.set_args((op.args[0], 1.5))
        return True


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "g.ir").write_text(GRAPH)
    numpy.savez(tmp_path / "x.npz", x=numpy.arange(6, dtype=numpy.float32).reshape(2, 3))
    return [str(tmp_path / "g.ir"), "--inputs", str(tmp_path / "x.npz")]


def test_nothing_moved(files: list[str], capsys: Captured) -> None:
    assert run(["bisect", *files]) == 0
    assert capsys.readouterr().out.startswith("nothing moved: ")
    assert run(["bisect", *files, "--adversarial", "--dtype", "float32"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["  as given", "  S = 1"]


def test_a_wrong_pass_is_named(files: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnc.compiler.inspection.bisect.PIPELINE", (Halves(),))
    assert run(["bisect", *files]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "pass halves (1 of 1) moved a number, with inputs: as given",
        "  %y: f32[2, S] = aten.mul.Tensor(%x, 1.5)",
        "  model.py:4  y = 3 * x  in layers.0",
        "  differs by 0.5 of its largest magnitude, most at [1, 2]: was 15, is 7.5; "
        "output 0 differs by 0.5 of its largest magnitude, most at [1, 2]: was 15, is 7.5",
    ]


def test_a_graph_without_inputs(files: list[str], capsys: Captured) -> None:
    assert run(["bisect", files[0]]) == 1
    assert "a graph in text form has no inputs; give --inputs" in capsys.readouterr().err


def test_a_graph_that_cannot_run(files: list[str], capsys: Captured) -> None:
    Path(files[0]).write_text(GRAPH.replace("mul.Tensor", "mul.Missing"))
    assert run(["bisect", *files]) == 1
    assert "cannot be run in the reference interpreter: as given: " in capsys.readouterr().err


@pytest.mark.parametrize("extra", [["--dtype", "int8"], ["--nothing"]])
def test_a_wrong_call_is_2(extra: list[str], files: list[str]) -> None:
    assert run(["bisect", *files, *extra]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["models:mistral", "models:bert", "models:gpt2"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_families_hold_on_adversarial_inputs(name: str, dtype: str, capsys: Captured) -> None:
    assert run(["bisect", name, "--dim", "B=1..8", "--dim", "S=2..64", "--adversarial", "--dtype", dtype]) == 0
    out = capsys.readouterr().out
    assert "  attention_mask: all padding\n" in out
    assert "  attention_mask: left padding in a row, NaN behind it in the embedding\n" in out
