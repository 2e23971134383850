"""``attnc generate``: text, chats, and the report on quantised caches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from attnc.compiler import cache_scoring
from attnc.compiler.cache_report import CacheReport, CacheRow
from attnc.compiler.cli.app import run

Captured = pytest.CaptureFixture[str]

MODULE = """
from benchmarks.cases.decoders import decoder

class Bytes:
    def encode(self, text):
        return list(text.encode())
    def decode(self, ids):
        return "".join(chr(97 + i % 26) for i in ids)

class Talking(Bytes):
    def chat(self, messages):
        (message,) = messages
        return [1, *self.encode(message["role"] + message["content"]), 2]

def make(tokenizer=Bytes):
    model = decoder("attnc-llama").make()
    model.tokenizer = tokenizer()
    return model

def talking():
    return make(Talking)

def mute():
    return decoder("attnc-llama").make()
"""
ROWS = (
    CacheRow("f32 (own)", 20.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1000, 0.5),
    CacheRow("int4", 21.0, 0.05, 0.002, 9.0, 0.5, 0.1, 0.8, 144, 3.56),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a module of models and a text."""
    (tmp_path / "spoken.py").write_text(MODULE)
    (tmp_path / "text.txt").write_text("All that is gold does not glitter.")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command asks to be scored; it gets ROWS."""
    found: dict[str, Any] = {}

    def score(model: object, tokens: Sequence[int], kvs: Sequence[str], **rest: Any) -> CacheReport:
        found.update(tokens=list(tokens), kvs=tuple(kvs), **rest)
        return CacheReport(rest["name"], len(tokens) - 1, ROWS)

    monkeypatch.setattr(cache_scoring, "score_caches", score)
    return found


def test_report_is_a_table_with_its_warning(folder: Path, asked: dict[str, Any], capsys: Captured) -> None:
    assert run(["generate", "spoken:make", "--kv", "int4", "--report", "--text", "text.txt", "--max-length", "99"]) == 0
    assert asked == {
        "tokens": list(b"All that is gold does not glitter."),
        "kvs": ("int4",),
        "name": "spoken:make",
        "max_length": 99,
    }
    out = capsys.readouterr().out
    assert "spoken:make" in out and "33 tokens" in out and "+5.00% ± 0.20%" in out and "3.56×" in out
    assert "ATTNC-KV-PERPLEXITY int4 changes perplexity by +5.0%" in out and "--kv int8/int4" in out


def test_report_as_json(folder: Path, asked: dict[str, Any], capsys: Captured) -> None:
    """By default several caches, on a text that Python brings along."""
    assert run(["generate", "spoken:make", "--report", "--json"]) == 0
    assert asked["kvs"] == cache_scoring.QUANTISED
    assert bytes(asked["tokens"]).decode().startswith("Objects, values and types\n") and len(asked["tokens"]) > 20000
    data = json.loads(capsys.readouterr().out)
    assert [row["kv"] for row in data["rows"]] == ["f32 (own)", "int4"]
    assert [note["code"] for note in data["notes"]] == ["ATTNC-KV-PERPLEXITY"]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "--prompt"),
        (["--report", "--prompt", "x"], 2, "--prompt"),
        (["--prompt", "x", "--json"], 2, "--report"),
        (["--prompt", "x", "--text", "text.txt"], 2, "--report"),
        (["--report", "--text", "absent.txt"], 1, "absent.txt"),
        (["--report", "--text", "binary.txt"], 1, "binary.txt: not a text file"),
        (["--prompt", "x", "--chat"], 1, "no chat template"),
    ],
)
def test_wrong_calls(folder: Path, arguments: list[str], status: int, message: str, capsys: Captured) -> None:
    (folder / "binary.txt").write_bytes(b"\xff\xfe\x00")
    assert run(["generate", "spoken:make", *arguments]) == status
    assert message in capsys.readouterr().err


def test_a_source_without_a_tokenizer(folder: Path, capsys: Captured) -> None:
    for arguments in (["--report"], ["--prompt", "x"]):
        assert run(["generate", "spoken:mute", *arguments]) == 1
        assert "spoken:mute: has no tokenizer" in capsys.readouterr().err


@pytest.mark.slow
def test_text_is_printed(folder: Path, capsys: Captured) -> None:
    greedy = ["generate", "spoken:talking", "--max-length", "64", "--max-new", "5"]
    assert run([*greedy, "--prompt", "ab"]) == 0
    plain = capsys.readouterr().out
    assert len(plain.strip()) == 5
    assert run([*greedy, "--prompt", "ab", "--prompt", "xyz"]) == 0
    assert f"## ab\n{plain}\n## xyz\n".replace("\n\n", "\n") in capsys.readouterr().out.replace("\n\n", "\n")
    assert run([*greedy, "--prompt", "ab", "--chat"]) == 0
    assert capsys.readouterr().out != plain


@pytest.mark.slow
def test_the_whole_way(folder: Path, capsys: Captured) -> None:
    assert run(["generate", "spoken:make", "--kv", "int8/int4", "--report", "--text", "text.txt", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    own, row = data["rows"]
    assert (data["tokens"], row["kv"]) == (33, "int8/int4")
    assert own["largest_error"] == 0 < row["largest_error"]
    assert (own["capacity"], own["change"]) == (0.5, 0.0) and row["capacity"] > 2
