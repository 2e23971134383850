"""The container: what is written is an ordinary zip file, and nothing else than what is written is read."""

from __future__ import annotations

import os
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnc.runtime.artifact import container as reading
from attnc.runtime.artifact import writer as writing
from attnc.runtime.artifact.container import Container
from attnc.runtime.artifact.layout import ALIGNMENT
from attnc.runtime.artifact.writer import ContainerWriter
from attnc.runtime.errors import ArtifactError

CONTENT = {
    "a.json": b'{"a": 1}',
    "folder/empty": b"",
    "folder/one.bin": bytes(range(256)) * 3,
    "x_1/y-2/z.so": b"\x7fELF" + bytes(61),
}


def write(path: Path, content: dict[str, bytes] | None = None) -> Path:
    with path.open("w+b") as stream:
        writer = ContainerWriter(stream)
        for name, data in (CONTENT if content is None else content).items():
            half = len(data) // 2
            writer.add(name, (data[:half], memoryview(data)[half:]), len(data))
        writer.finish()
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    found = Container(write(tmp_path / "a"))
    assert {name: bytes(found.view(name)) for name in found.entries} == CONTENT
    assert all(entry.offset % ALIGNMENT == 0 for entry in found.entries.values())
    assert found.checked("folder/one.bin") == CONTENT["folder/one.bin"]


def test_any_zip_reader_takes_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(write(tmp_path / "a")) as archive:
        assert archive.testzip() is None
        assert {info.filename: archive.read(info) for info in archive.infolist()} == CONTENT
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {info.external_attr >> 16 for info in archive.infolist()} == {0o100644}


def test_the_same_entries_give_the_same_bytes(tmp_path: Path) -> None:
    assert write(tmp_path / "a").read_bytes() == write(tmp_path / "b").read_bytes()


@pytest.mark.parametrize("big", [1, 60, 700, 1500])
def test_beyond_32_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, big: int) -> None:
    """As if sizes and offsets from ``big`` bytes on had no place in the plain fields."""
    monkeypatch.setattr(writing, "BIG", big)
    monkeypatch.setattr(reading, "BIG", big)
    found = Container(write(tmp_path / "a"))
    assert {name: bytes(found.view(name)) for name in found.entries} == CONTENT


def test_a_large_file_is_read_by_zipfile(tmp_path: Path) -> None:
    """An entry that begins behind 4 GiB, in a file with a hole."""
    path = tmp_path / "large"
    size = (1 << 32) + 70
    with path.open("w+b") as stream:
        writer = ContainerWriter(stream)
        writer.add("first", (), 0)
        offset = stream.tell()
        stream.seek(offset + size)
        writer.add("behind", (b"content",), 7)
        writer.finish()
    with zipfile.ZipFile(path) as archive:
        assert archive.read("behind") == b"content"
    assert bytes(Container(path).view("behind")) == b"content"


def test_memory_is_private(tmp_path: Path) -> None:
    path = write(tmp_path / "a")
    before = path.read_bytes()
    found = Container(path)
    found.view("folder/one.bin")[:4] = b"abcd"
    assert bytes(found.view("folder/one.bin")[:4]) == b"abcd" and path.read_bytes() == before


@pytest.mark.parametrize("name", ["", "/a", "../a", "a/../b", ".a", "a/.b", "a//b", "a b", "ä", "a/b/c/d/e", "a\\b"])
def test_names_that_no_entry_has(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="can be called"):
        write(tmp_path / "a", {name: b"1"})
    with zipfile.ZipFile(tmp_path / "z", "w") as archive:
        archive.writestr(name or "?", b"1")
    with pytest.raises(ArtifactError):
        Container(tmp_path / "z")


def end(data: bytearray) -> int:
    return len(data) - 22


def directory(data: bytearray) -> int:
    return int.from_bytes(data[end(data) + 16 : end(data) + 20], "little")


def put(place: Callable[[bytearray], int], offset: int, code: str, value: int) -> Callable[[bytearray], None]:
    return lambda data: struct.pack_into("<" + code, data, place(data) + offset, value)


def begin(data: bytearray) -> int:
    return 0


EDITS: dict[str, tuple[Callable[[bytearray], Any], str]] = {
    "empty": (lambda data: data.clear(), "empty"),
    "cut off": (lambda data: data.__delitem__(slice(-1, None)), "no end record"),
    "longer": (lambda data: data.extend(b"\0"), "no end record"),
    "front cut off": (lambda data: data.__delitem__(slice(0, 64)), "end record doesn't fit"),
    "more entries": (put(end, 10, "H", 5), "end record doesn't fit"),
    "many entries": (lambda data: [put(end, at, "H", 5)(data) for at in (8, 10)], "cut off|doesn't fit"),
    "few entries": (lambda data: [put(end, at, "H", 3)(data) for at in (8, 10)], "another length"),
    "no entries": (lambda data: [put(end, at, "H", 0)(data) for at in (8, 10)], "another length"),
    "directory elsewhere": (put(end, 16, "I", 7), "end record doesn't fit"),
    "directory large": (put(end, 12, "I", 1 << 31), "end record doesn't fit"),
    "sixty-four bits": (put(end, 16, "I", 0xFFFFFFFF), "large file"),
    "compressed": (put(directory, 10, "H", 8), "compressed"),
    "encrypted": (put(directory, 8, "H", 1), "damaged"),
    "size": (put(directory, 24, "I", 9), "damaged|compressed"),
    "both sizes": (lambda data: [put(directory, at, "I", 1 << 30)(data) for at in (20, 24)], "header"),
    "huge sizes": (lambda data: [put(directory, at, "I", 0xFFFFFFFF)(data) for at in (20, 24)], "extra field"),
    "crc": (put(directory, 16, "I", 1), "a.json: its header is not what"),
    "offset": (put(directory, 42, "I", 1 << 30), "outside"),
    "another's offset": (put(directory, 42, "I", 128), "header"),
    "name long": (put(directory, 28, "H", 60000), "damaged"),
    "own name": (put(begin, 30, "B", ord("b")), "another name"),
    "own method": (put(begin, 8, "H", 8), "header is not what"),
    "own extra": (put(begin, 28, "H", 3), "no multiple of 64"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_is_wrong_is_said(tmp_path: Path, edit: str) -> None:
    change, message = EDITS[edit]
    data = bytearray(write(tmp_path / "a").read_bytes())
    change(data)
    (tmp_path / "b").write_bytes(data)
    with pytest.raises(ArtifactError, match=message) as caught:
        Container(tmp_path / "b")
    assert str(caught.value).startswith(f"loading {tmp_path / 'b'}")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="No such file"):
        Container(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ArtifactError, match="it is no ordinary file"):
            Container(other)


def test_two_entries_of_one_name_and_overlapping_ones(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "z", "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a", b"1")
        archive.writestr("a", b"2")
    with pytest.raises(ArtifactError):
        Container(tmp_path / "z")
    data = bytearray(write(tmp_path / "a", {"a": b"x" * 40, "b": b"x" * 40}).read_bytes())
    second = directory(data) + 46 + 1
    struct.pack_into("<I", data, second + 42, 0)  # b's record leads to a
    data[second + 46 : second + 47] = b"a"
    (tmp_path / "b").write_bytes(data)
    with pytest.raises(ArtifactError, match=r"entry a: (there are two|it overlaps)"):
        Container(tmp_path / "b")


def test_every_flipped_bit_is_an_error_or_harmless(tmp_path: Path) -> None:
    """Content aside, which has hashes: entries keep their names, sizes and places, or the file is refused."""
    data = write(tmp_path / "a").read_bytes()
    entries = Container(tmp_path / "a").entries
    refused = 0
    for place in random.Random(0).sample(range(8 * len(data)), 600):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        (tmp_path / "b").write_bytes(flipped)
        try:
            found = Container(tmp_path / "b").entries
        except ArtifactError:
            refused += 1
        else:
            assert found == entries
    assert refused > 60
