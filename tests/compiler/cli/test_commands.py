"""Commands from argument to exit status: results on stdout, one message on stderr, nothing half-written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import attnc
from attnc.compiler.cli.app import run
from attnc.compiler.report import Report

Captured = pytest.CaptureFixture[str]

GRAPH = """graph @scale(%x: f32[2, S]) sizes(S in [1, inf]) {
  %y: f32[2, S] = aten.mul.Tensor(%x, 3.0)
  return %y
}
"""


def test_version(capsys: Captured) -> None:
    assert run(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"attnc {attnc.__version__}\ntorch ")


def test_explain_prints_a_row_per_attention(capsys: Captured) -> None:
    assert run(["explain", "models:mistral", "--dim", "S=2..4096", "--fail-under", "100"]) == 0
    out = capsys.readouterr().out
    assert "2/2 attentions fused" in out
    assert ".py:" in out and "GQA(2)" in out and "(k <= q) & (k - q > -8)" in out


def test_explain_json_is_a_report(capsys: Captured) -> None:
    assert run(["explain", "models:bert", "--json"]) == 0
    report = Report.from_json(capsys.readouterr().out)
    assert (report.fused, report.total) == (2, 2)


def test_fail_under(capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model without attention has none fused."""
    (tmp_path / "plain.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(3, 3), (torch.ones(2, 3),)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert run(["explain", "plain:make"]) == 0
    assert run(["explain", "plain:make", "--fail-under", "1"]) == 1
    assert "0 of 0 attentions are fused, fewer than 1 %" in capsys.readouterr().err


def test_compile_dumps_each_pass(capsys: Captured, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    assert run(["compile", "models:gpt2", "--dump-ir", str(folder)]) == 0
    names = [path.name for path in folder.rglob("*") if path.is_file()]
    assert any(name.endswith("captured.ir") for name in names)
    assert any(name.endswith(".cpp") for name in names)
    assert "report.json" in names
    listed = capsys.readouterr().out.splitlines()
    assert all(str(path) in listed for path in folder.rglob("*") if path.is_file())
    assert list(tmp_path.iterdir()) == [folder]


def test_a_failed_compile_leaves_nothing(capsys: Captured, tmp_path: Path) -> None:
    assert run(["compile", "models:nothing", "--dump-ir", str(tmp_path / "dump")]) == 1
    assert list(tmp_path.iterdir()) == []
    assert "no such model" in capsys.readouterr().err


def test_opt_prints_the_graph(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "g.ir"
    file.write_text(GRAPH)
    assert run(["opt", str(file), "--passes", "clean-up"]) == 0
    assert "aten.mul.Tensor(%x, 3.0)" in capsys.readouterr().out
    assert run(["opt", str(file), "--passes", "clean-up", "-o", str(tmp_path / "out.ir")]) == 0
    assert run(["opt", str(tmp_path / "out.ir"), "--passes", "canonicalize"]) == 0


def test_opt_names_the_passes_there_are(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "g.ir").write_text(GRAPH)
    assert run(["opt", str(tmp_path / "g.ir"), "--passes", "clean-up,wrong"]) == 1
    assert "no pass 'wrong'; passes are canonicalize, " in capsys.readouterr().err


def test_run_executes(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "g.ir").write_text(GRAPH)
    x = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    numpy.savez(tmp_path / "x.npz", x=x)
    command = ["run", str(tmp_path / "g.ir"), "--inputs", str(tmp_path / "x.npz"), "-o", str(tmp_path / "out.npz")]
    assert run(command) == 0
    assert capsys.readouterr().out == "y: torch.float32 [2, 3] from 0 to 15\n"
    with numpy.load(tmp_path / "out.npz") as results:
        assert (results["y"] == 3 * x).all()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "input %x: missing; the file holds nothing"),
        ({"x": numpy.zeros((2, 3), numpy.int64)}, "input %x: is torch.int64, the graph wants torch.float32"),
        ({"x": numpy.zeros((3, 3), numpy.float32)}, "input %x: has shape [3, 3], the graph wants [2, S]"),
        ({"x": numpy.zeros(2, numpy.float32)}, "input %x: has shape [2], the graph wants [2, S]"),
    ],
)
def test_run_checks_its_inputs(capsys: Captured, tmp_path: Path, arrays: dict[str, object], message: str) -> None:
    (tmp_path / "g.ir").write_text(GRAPH)
    numpy.savez(tmp_path / "x.npz", **arrays)
    out = tmp_path / "out.npz"
    assert run(["run", str(tmp_path / "g.ir"), "--inputs", str(tmp_path / "x.npz"), "-o", str(out)]) == 1
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_run_names_the_op_that_failed(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "g.ir").write_text(GRAPH.replace("aten.mul.Tensor(%x, 3.0)", "aten.mul.Missing(%x, 3.0)"))
    numpy.savez(tmp_path / "x.npz", x=numpy.zeros((2, 3), numpy.float32))
    assert run(["run", str(tmp_path / "g.ir"), "--inputs", str(tmp_path / "x.npz")]) == 1
    assert "running %y = aten.mul.Missing" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "graph @g(", GRAPH.replace("%x, 3.0", "%z, 3.0"), "\x00\xff"])
def test_broken_text_is_one_message(capsys: Captured, tmp_path: Path, text: str) -> None:
    (tmp_path / "g.ir").write_text(text, encoding="latin-1")
    for command in (["opt", str(tmp_path / "g.ir"), "--passes", "clean-up"], ["explain", str(tmp_path / "g.ir")]):
        assert run(command) == 1
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.startswith("attnc: ") and "Traceback" not in captured.err
        assert "g.ir" in captured.err or "graph @" in captured.err


def test_doctor(capsys: Captured) -> None:
    assert run(["doctor"]) in (0, 1)
    out = capsys.readouterr().out
    assert "torch" in out and "build store" in out


def test_cache_lists_and_clears(capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNC_CACHE_DIR", str(tmp_path / "store"))
    assert run(["cache", "ls"]) == 0
    assert "0 kernels" in capsys.readouterr().out
    assert run(["cache", "clear"]) == 0
    assert "removed 0 kernels, 0.0 MB" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["explain"], ["nonsense"], ["compile", "models:bert"], ["explain", "x", "--no"]])
def test_a_wrong_call_is_2(capsys: Captured, arguments: list[str]) -> None:
    assert run(arguments) == 2
    assert "Error: " in capsys.readouterr().err


def test_an_unknown_option_value_is_a_message(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNC_HOST", "abacus")
    monkeypatch.setenv("ATTNC_VERIFY", "never")
    assert run(["explain", "models:bert"]) == 1
    assert "attnc option verify='never': choose one of" in capsys.readouterr().err


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    from attnc.compiler.cli.errors import CliError

    monkeypatch.setenv("ATTNC_DEBUG", "1")
    with pytest.raises(CliError):
        run(["explain", "nowhere"])


def test_module_and_script_are_the_same_command() -> None:
    script = Path(sys.executable).with_name("attnc")
    for command in ([str(script)], [sys.executable, "-m", "attnc"]):
        done = subprocess.run([*command, "explain", "x.pt2"], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.startswith("attnc: x.pt2: this version does not read exported programs; sources are ")
