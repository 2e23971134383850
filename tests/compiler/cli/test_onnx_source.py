"""ONNX files on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from attnc.compiler.cli.app import run
from tests.compiler.frontends.onnx.onnx_models import BOOL, FLOAT, model, node


@pytest.fixture
def attention_file(tmp_path: Path) -> Path:
    """One attention with a mask, sizes by name."""
    nodes = [
        node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "q kt", "scores", name="/block.0/attn/MatMul"),
        node("Where", "mask scores fill", "masked"),
        node("Softmax", "masked", "weights", axis=-1, name="/block.0/attn/Softmax"),
        node("MatMul", "weights v", "y"),
    ]
    inputs = {name: (FLOAT, ["batch", 2, "length", 8]) for name in "qkv"}
    inputs["mask"] = (BOOL, ["batch", 1, 1, "length"])
    proto = model(nodes, inputs, {"y": (FLOAT, None)}, fill=np.float32(-np.inf))
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_explain(attention_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", str(attention_file), "--json", "--fail-under", "100"]) == 0
    (site,) = json.loads(capsys.readouterr().out)["sites"]
    assert site["fused"]
    assert site["module"] == "block.0.attn"
    assert site["where"] == f"{attention_file}: Softmax, node '/block.0/attn/Softmax'"
    assert site["mask"] == "mask[b, 0, 0, k]" or "mask[" in site["mask"]
    assert "b=batch" in site["shape"]
    assert "k=length" in site["shape"]


def test_a_size_by_its_name(attention_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", str(attention_file), "--dim", "length=1..64"]) == 0
    assert run(["explain", str(attention_file), "--dim", "len=64"]) == 1
    assert "no size named 'len'; its sizes are batch, length" in capsys.readouterr().err


def test_bisect_runs_a_model(attention_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(3)
    arrays = {name: rng.standard_normal((2, 2, 5, 8)).astype(np.float32) for name in "qkv"}
    np.savez(tmp_path / "x.npz", **arrays, mask=rng.random((2, 1, 1, 5)) > 0.3)
    assert run(["bisect", str(attention_file), "--inputs", str(tmp_path / "x.npz")]) == 0
    assert capsys.readouterr().out.startswith("nothing moved: ")


def test_a_wrong_model_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node("Add", "scores mask", "y", name="/attn/Add")]
    proto = model(nodes, {"scores": (FLOAT, ["n", 4]), "mask": (BOOL, ["n", 4])}, {"y": (FLOAT, None)})
    onnx.save(proto, tmp_path / "bad.onnx")
    assert run(["explain", str(tmp_path / "bad.onnx")]) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "attnc: importing Add, node '/attn/Add': its inputs have different types: 'scores' is float32"
    )
    assert "'mask' is bool" in said
    assert "Traceback" not in said


def test_an_artifact_of_a_file_is_checked(
    attention_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "m.attnc"
    assert run(["compile", str(attention_file), "-o", str(out), "--check"]) == 0
    said = capsys.readouterr().out
    assert "1/1 attentions" in " ".join(said.split())
    assert "random 1: batch = " in said
    assert said.count("right") >= 5
    assert "WRONG" not in said
    rng = np.random.default_rng(4)
    arrays = {name: rng.standard_normal((1, 2, 7, 8)).astype(np.float32) for name in "qkv"}
    np.savez(tmp_path / "x.npz", **arrays, mask=np.ones((1, 1, 1, 7), bool))
    assert run(["run", str(out), "--inputs", str(tmp_path / "x.npz")]) == 0
    assert capsys.readouterr().out.startswith("y: ")


@pytest.mark.slow
def test_a_wrong_result_is_found(
    attention_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from attnc.compiler.api import Program

    right = Program.run
    monkeypatch.setattr(Program, "run", lambda self, given: {k: v * 1.0001 for k, v in right(self, given).items()})
    assert run(["compile", str(attention_file), "--check"]) == 1
    shown = capsys.readouterr()
    assert "WRONG" in shown.out
    assert "results are wrong" in shown.err


def test_onnx_out(attention_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "fast.onnx"
    assert run(["compile", str(attention_file), "--emit", "onnx", "-o", str(out), "--check"]) == 0
    said = capsys.readouterr().out
    assert f"{out}: 1 of 1 attentions are one operator" in said
    assert "WRONG" not in said
    assert "MultiHeadAttention" in [n.op_type for n in onnx.load(out).graph.node]
