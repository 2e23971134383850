"""``attnc compile -o``, ``attnc run`` and ``attnc inspect``: artifacts from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import attnc
from attnc.compiler.cli.app import run

Captured = pytest.CaptureFixture[str]

GRAPH = """graph @scale(%x: f32[B, S], %n: int<S>) sizes(B in [1, 8], S in [1, inf]) {
  %y: f32[B, S] = aten.mul.Tensor(%x, 3.0)
  %z: bf16[B, S] = aten._to_copy.default(%y, dtype=dtype<bf16>)
  return %y, %z, %n
}
"""
WITH_WEIGHT = """graph @scale(%x: f32[3]) {
  constant @w: f32[3]
  %w: f32[3] = ir.constant() {name = "w"}
  %y: f32[3] = aten.mul.Tensor(%x, %w)
  return %y
}
"""

MODULE = """
import torch

class Attention(torch.nn.Module):
    def forward(self, x, bias):
        at = torch.arange(x.shape[1])
        scores = (x @ x.transpose(1, 2)) * 0.5 + bias
        return scores.masked_fill(at[None, :] > at[:, None], float("-inf")).softmax(-1) @ x

def make():
    return Attention(), (torch.randn(2, 5, 8), torch.zeros(5))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a graph, a model, and inputs for both."""
    (tmp_path / "g.ir").write_text(GRAPH)
    (tmp_path / "attention_module.py").write_text(MODULE)
    draw = numpy.random.default_rng(0)
    numpy.savez(tmp_path / "g.npz", x=draw.random((3, 5), numpy.float32), n=5)
    x = draw.random((2, 5, 8), numpy.float32)
    numpy.savez(tmp_path / "a.npz", arr_0=x, arr_1=draw.random(5, numpy.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_graph_becomes_an_artifact(folder: Path, capsys: Captured) -> None:
    assert run(["compile", "g.ir", "-o", "g.attnc"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "g.attnc"
    assert run(["run", "g.attnc", "--inputs", "g.npz", "-o", "out.npz"]) == 0
    assert "y: torch.float32 [3, 5] from " in capsys.readouterr().out
    with numpy.load("out.npz") as found, numpy.load("g.npz") as given:
        assert numpy.array_equal(found["y"], given["x"] * 3) and found["z"].dtype == numpy.float32


@pytest.mark.slow
def test_a_model_becomes_an_artifact(folder: Path, capsys: Captured) -> None:
    src = "attention_module:make"
    assert run(["compile", src, "-o", "a.attnc", "--dump-ir", "dump", "--target", "cpu", "--dim", "x.0=2..8"]) == 0
    out = capsys.readouterr().out
    assert "1/1 attentions fused" in out and "a.attnc" in out and "report.json" in out
    for source, file in ((src, "one.npz"), ("a.attnc", "two.npz")):
        assert run(["run", source, "--inputs", "a.npz", "-o", file]) == 0
    with numpy.load("one.npz") as one, numpy.load("two.npz") as two:
        assert list(one) == list(two) == ["output"] and numpy.array_equal(one["output"], two["output"])


def test_inspect(folder: Path, capsys: Captured) -> None:
    assert run(["compile", "attention_module:make", "-o", "a.attnc"]) == 0
    capsys.readouterr()
    assert run(["inspect", "a.attnc"]) == 0
    out = capsys.readouterr().out
    for text in ("attention_module:make: artifact of attnc", "f32[2, 5, 8]", "flash_f32_d8", "yes", "program.json"):
        assert text in out
    assert run(["inspect", "a.attnc", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["targets"] == ["cpu"] and [a["count"] for a in found["attentions"]] == [1]
    assert run(["inspect", "attention_module:make", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == found


def test_what_is_damaged_is_one_message(folder: Path, capsys: Captured) -> None:
    assert run(["compile", "g.ir", "-o", "g.attnc"]) == 0
    capsys.readouterr()
    data = bytearray((folder / "g.attnc").read_bytes())
    data[300] ^= 1
    (folder / "bad.attnc").write_bytes(data)
    for command in (["run", "bad.attnc", "--inputs", "g.npz"], ["inspect", "bad.attnc"], ["inspect", "no.attnc"]):
        assert run(command) == 1
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith(f"attnc: loading {command[1]}") and said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["compile", "g.ir"], 2, "nothing to do: give --output model.attnc, --dump-ir DIR or --check"),
        (["compile", "g.ir", "-o", "g.attnc", "--target", "abacus"], 2, "--target abacus: known are cpu"),
        (["compile", "g.ir", "--dump-ir", "d", "--target", "cpu"], 2, "written with --output"),
        (["compile", "w.ir", "-o", "w.attnc"], 1, "constant @w: its numbers are not in the graph's text"),
        (["compile", "g.attnc", "-o", "h.attnc"], 1, "g.attnc: is compiled already; attnc run and attnc inspect"),
        (["compile", "g.ir", "-o", "no/folder/g.attnc"], 1, "writing no/folder/g.attnc: No such file"),
        (["run", "g.attnc", "--inputs", "a.npz"], 1, "running g.attnc: input x has 3 dimensions, the program takes 2"),
        (["run", "g.attnc", "--inputs", "none.npz"], 1, "--inputs none.npz: no such file"),
    ],
)
def test_what_is_refused(folder: Path, capsys: Captured, arguments: list[str], code: int, message: str) -> None:
    (folder / "w.ir").write_text(WITH_WEIGHT)
    if arguments[0] == "run":
        assert run(["compile", "g.ir", "-o", "g.attnc"]) == 0
    before = sorted(folder.iterdir())
    capsys.readouterr()
    assert run(arguments) == code
    assert message in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


BARE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"sympy", "islpy", "onnx", "onnxruntime", "triton", "transformers", "networkx"}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Blocker())
from attnc.compiler.cli import main
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_run_and_inspect_need_no_compiler(folder: Path) -> None:
    assert run(["compile", "attention_module:make", "-o", "a.attnc"]) == 0
    environment = {"PATH": "", "ATTNC_CACHE_DIR": str(folder / "empty")}
    for arguments in (["run", "a.attnc", "--inputs", "a.npz", "-o", "out.npz"], ["inspect", "a.attnc"]):
        command = [sys.executable, "-c", BARE, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    with numpy.load("out.npz") as found, numpy.load("a.npz") as given:
        program = attnc.load(folder / "a.attnc")
        assert numpy.array_equal(found["output"], program(given["arr_0"], given["arr_1"])[0])
