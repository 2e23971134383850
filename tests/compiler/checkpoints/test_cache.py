"""The cache of checkpoints: one builder, nothing half-written, nothing stale. No torch."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path

import pytest

from attnc.compiler.checkpoints import cache
from attnc.compiler.checkpoints.errors import CheckpointError, first_line


def test_of_many_builders_one_builds(tmp_path: Path) -> None:
    calls: list[Path] = []
    found: list[str] = []

    def build(folder: Path) -> None:
        calls.append(folder)
        time.sleep(0.05)
        (folder / "weights").write_bytes(b"whole")

    def use() -> None:
        found.append((cache.obtain_folder(tmp_path / "c" / "m", {"of": 1}, build) / "weights").read_text())

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["whole"] * 6
    assert len(calls) == 1


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()])
def test_a_builder_that_fails_leaves_what_was_there(error: BaseException, tmp_path: Path) -> None:
    final = tmp_path / "c" / "m"
    cache.obtain_folder(final, {"of": 1}, lambda folder: (folder / "weights").write_bytes(b"old") and None)

    def fail(folder: Path) -> None:
        (folder / "weights").write_bytes(b"half")
        raise error

    with pytest.raises(type(error)):
        cache.obtain_folder(final, {"of": 2}, fail)
    assert (final / "weights").read_bytes() == b"old"
    assert sorted(path.name for path in final.parent.iterdir()) == [".lock", "m"]


def test_a_full_disk_is_an_error_of_the_cache(tmp_path: Path) -> None:
    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CheckpointError, match="No space left on device; set ATTNC_CACHE_DIR"):
        cache.obtain_folder(tmp_path / "m", {}, full)


@pytest.mark.parametrize(
    "manifest", ["", "[]", "{}", '{"origin": {"of": 1}}', '{"origin": {"of": 1}, "files": {"a": 1}}']
)
def test_a_manifest_that_says_nothing_is_no_manifest(manifest: str, tmp_path: Path) -> None:
    final = tmp_path / "m"
    final.mkdir()
    (final / "manifest.json").write_text(manifest)
    cache.obtain_folder(final, {"of": 1}, lambda folder: (folder / "weights").write_bytes(b"new") and None)
    assert (final / "weights").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("plain", "plain"),
        ("\n  first\nIf you were trying to load it from a hub …", "first"),
        ("Validation error for field 'x':\n    TypeError: no int", "Validation error for field 'x': TypeError: no int"),
        ("", "ValueError"),
    ],
)
def test_messages_are_cut_to_what_they_say(message: str, line: str) -> None:
    assert first_line(ValueError(message)) == line
