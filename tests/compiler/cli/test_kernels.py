"""``attnc kernels``: machine code without a GPU, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnc.compiler.cli.app import run
from attnc.runtime.gpu.binary import read


def test_a_variant_is_compiled_judged_and_packaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--variant", "causal", "--head-dim", "64", "--json", "--out", str(tmp_path)]
    assert run(["kernels", "--target", "sm_90", *arguments]) == 0
    (row,) = json.loads(capsys.readouterr().out)["kernels"]
    assert (row["name"], row["target"], row["spills"], row["gates"]) == ("causal", "sm_90", 0, [])
    assert row["tensor_core"] > 0 and 0 < row["registers"] <= 255 and row["shared"] <= 227 << 10
    packaged = read(tmp_path, "causal_sm_90")
    assert packaged.record.shared == row["shared"] and packaged.record.constants["D"] == 64
    assert [p.name for p in packaged.record.parameters][:5] == ["Q", "K", "V", "Out", "Lse"]


@pytest.mark.slow
def test_the_kernels_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kernels", "models:mistral", "--target", "sm_80", "--dim", "B=2..8", "--dim", "S=2..4096"]) == 0
    assert "all passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "cpu"], "compiled ahead of time for sm_80"),
        (["--target", "sm_70"], "--target sm_70"),
        (["--variant", "nothing"], "known are causal"),
    ],
)
def test_unknown_names_are_told(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kernels", *arguments]) == 1
    assert words in capsys.readouterr().err
