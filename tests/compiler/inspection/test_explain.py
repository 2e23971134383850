"""``attnc explain --png`` and ``--fail-under``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from attnc.compiler.cli.app import run

Model = Callable[..., str]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn and counted needs no compiler."""
    monkeypatch.setattr("attnc.compiler.driver._build", lambda context: 0.0)


@pytest.fixture
def mixed(tmp_path: Path, model: Model) -> str:
    """Three attentions, one of which returns its weights; and a softmax that is none."""
    text = model(3).replace("return %l2y", "%z: f32[2, 4, S, 8] = aten.softmax.int(%v, -1)\n  return %l2y, %l1p, %z")
    (tmp_path / "mixed.ir").write_text(text)
    return str(tmp_path / "mixed.ir")


@pytest.mark.parametrize(("percent", "status"), [(0, 0), (66, 0), (67, 1), (100, 1)])
def test_the_share_counts_attentions_only(percent: int, status: int, mixed: str, capsys: Captured) -> None:
    assert run(["explain", mixed, "--fail-under", str(percent)]) == status
    captured = capsys.readouterr()
    assert "ATTNC-NOT-ATTENTION" in captured.out and "ATTNC-WEIGHTS-USED" in captured.out
    shown = captured.out.replace("│", " ").split()
    for words in ("nearest: softmax(qk", "blocked by: aten.softmax.int at", "edit: Return the output only:"):
        assert words in " ".join(shown)
    wanted = f"attnc: 2 of 3 attentions are fused, fewer than {percent} %\n" if status else ""
    assert captured.err == wanted


def test_a_picture_for_each_fused_site(mixed: str, tmp_path: Path, capsys: Captured) -> None:
    assert run(["explain", mixed, "--png", str(tmp_path / "masks")]) == 0
    assert sorted(file.name for file in (tmp_path / "masks").iterdir()) == ["site_00.png", "site_02.png"]
    assert (tmp_path / "masks" / "site_00.png").read_bytes().startswith(b"\x89PNG")
    assert "site 2, k <= q; 256 queries × 256 keys" in capsys.readouterr().err


def test_one_file_where_all_masks_are_one(mixed: str, tmp_path: Path, capsys: Captured) -> None:
    assert run(["explain", mixed, "--json", "--png", str(tmp_path / "mask.png")]) == 0
    captured = capsys.readouterr()
    assert (tmp_path / "mask.png").is_file() and "mask.png: sites 0, 2, k <= q" in captured.err
    assert captured.out.startswith("{") and "mask.png" not in captured.out


def test_one_file_cannot_hold_two_masks(tmp_path: Path, model: Model, capsys: Captured) -> None:
    text = model(2).replace("%l1c, %hidden", "%l1c, %never")
    line = "  %never: b1[S, S] = aten.lt.Tensor(%k, %q)\n  %l0t"
    (tmp_path / "two.ir").write_text(text.replace("  %l0t", line, 1))
    assert run(["explain", str(tmp_path / "two.ir"), "--png", str(tmp_path / "mask.png")]) == 1
    assert "there are 2 different masks; name a folder" in capsys.readouterr().err
    assert not (tmp_path / "mask.png").exists()


def test_json_says_what_a_refused_attention_nearly_was(mixed: str, capsys: Captured) -> None:
    assert run(["explain", mixed, "--json", "--fail-under", "100"]) == 1
    captured = capsys.readouterr()
    sites = json.loads(captured.out)["sites"]
    refused = next(site for site in sites if site["code"] == "ATTNC-WEIGHTS-USED")
    assert refused["nearest"] == "softmax(qk * 0.25)·V, causal, MHA"
    assert refused["blocker"] == "aten.softmax.int at model.py:11: p = softmax(scores)"
    assert "output_attentions=False" in refused["edit"]
    assert all(not site["edit"] for site in sites if site is not refused)
    assert captured.err == "attnc: 2 of 3 attentions are fused, fewer than 100 %\n"
