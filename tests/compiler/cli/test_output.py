"""Nothing half-written: files and folders appear whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnc.compiler.cli.errors import CliError
from attnc.compiler.cli.output import staged_file, staged_folder


def test_a_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "x.txt"
    with staged_file(target) as temporary:
        temporary.write_text("done")
        assert not target.exists()
    assert target.read_text() == "done"
    assert [p.name for p in tmp_path.iterdir()] == ["x.txt"]


def test_a_failed_block_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "x.txt"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), staged_file(target) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.txt"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="No such file or directory; choose a folder"), staged_file(tmp_path / "a" / "b"):
        raise AssertionError("the block must not run")


def test_a_folder_appears_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "dump"
    with staged_folder(target) as temporary:
        (temporary / "a").write_text("done")
        assert not target.exists()
    assert [p.name for p in target.iterdir()] == ["a"]
    assert [p.name for p in target.parent.iterdir()] == ["dump"]


def test_a_failed_block_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), staged_folder(tmp_path / "dump") as temporary:
        (temporary / "a").write_text("half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_full_folder_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "mine").write_text("keep")
    with pytest.raises(CliError, match="is no empty folder"), staged_folder(tmp_path / "dump"):
        raise AssertionError("the block must not run")
    assert (tmp_path / "dump" / "mine").read_text() == "keep"


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    with staged_folder(tmp_path / "dump") as temporary:
        (temporary / "a").write_text("done")
    assert (tmp_path / "dump" / "a").read_text() == "done"
