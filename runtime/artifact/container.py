"""Reads the container of an artifact. Only what :mod:`attnc.runtime.artifact.writer` writes is taken.

Everything is looked at in the mapped file and compared with its size before anything is made of it. Where headers
disagree, overlap or lead outside, the file is refused.
"""

from __future__ import annotations

import mmap
import stat
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnc.runtime.artifact.layout import (
    ALIGNMENT,
    BIG,
    CENTRAL,
    CENTRAL_SIGNATURE,
    END,
    END64,
    END64_SIGNATURE,
    END_SIGNATURE,
    EXTRA64,
    LOCAL,
    LOCAL_SIGNATURE,
    LOCATOR64,
    LOCATOR64_SIGNATURE,
    MANY,
    NAME,
)
from attnc.runtime.errors import ArtifactError


class Malformed(ValueError):
    """What is wrong with a part of an artifact; ``entry`` names the part."""

    def __init__(self, problem: str, entry: str = "") -> None:
        super().__init__(problem)
        self.entry = entry


@dataclass(frozen=True)
class Stored:
    """Where the content of an entry lies in the file, in bytes, and its checksum."""

    offset: int
    size: int
    crc: int


class Container:
    """An open artifact: ``entries`` by name, and their content as views of the mapped file.

    The memory is private and may be written: nothing of that reaches the file. Raises ArtifactError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._memory = _mapped(path)
        try:
            self.entries = _entries(self._memory)
        except (Malformed, struct.error) as error:
            raise self.error(str(error), getattr(error, "entry", "")) from error

    def view(self, name: str) -> memoryview:
        """The content of an entry. Raises ArtifactError where there is none of this name."""
        if name not in self.entries:
            raise self.error("it is missing", name)
        found = self.entries[name]
        return memoryview(self._memory)[found.offset : found.offset + found.size]

    def checked(self, name: str) -> bytes:
        """The content of an entry that no hash is known of, after its checksum. Raises ArtifactError."""
        content = bytes(self.view(name))
        if zlib.crc32(content) != self.entries[name].crc:
            raise self.error("its checksum is not that of its content", name)
        return content

    def text(self, name: str) -> str:
        """An entry of text. Raises ArtifactError where it is none."""
        try:
            return str(self.view(name), "utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"it is no UTF-8 text: {error.reason} at byte {error.start}", name) from error

    def error(self, problem: str, entry: str = "", remedy: str = "") -> ArtifactError:
        """What to raise for a problem of this file."""
        where = f", entry {entry}" if entry else ""
        remedy = remedy or "The file is damaged, or no artifact: copy it again, or compile the model again"
        return ArtifactError(f"loading {self.path}{where}: {problem}. {remedy}.", entry=entry)


def _mapped(path: Path) -> mmap.mmap:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for a writer
            raise ArtifactError(f"loading {path}: it is no ordinary file. Name an artifact.")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise ArtifactError(f"loading {path}: {error.strerror or error}. Name an artifact.") from error
    except ValueError as error:  # an empty file can't be mapped
        raise ArtifactError(f"loading {path}: {error}. Compile the model again.") from error


def _entries(memory: mmap.mmap) -> dict[str, Stored]:
    start, end, count = _directory(memory)
    found: dict[str, Stored] = {}
    place, free = start, 0
    for _ in range(count):
        name, size, crc, offset, place = _central(memory, place, end)
        if name in found:
            raise Malformed("there are two of it", name)
        if offset < free:
            raise Malformed("it overlaps the one before", name)
        begin = _local(memory, name, size, crc, offset)
        free = begin + size
        if free > start:
            raise Malformed(f"it ends at byte {free}, behind the last entry's end", name)
        found[name] = Stored(begin, size, crc)
    if place != end:
        raise Malformed("the directory of entries has another length than it says")
    return found


def _directory(memory: mmap.mmap) -> tuple[int, int, int]:
    """Begin, end and number of entries of the central directory."""
    tail = len(memory) - END.size
    if tail < 0 or memory[tail : tail + 4] != END_SIGNATURE:
        raise Malformed("it has no end record of a zip file, so it is cut off or of another kind")
    _, disk, other, count, again, size, start, comment = END.unpack_from(memory, tail)
    end = tail
    if start == BIG or count == MANY:
        end, disk, other, count, again, size, start = _directory64(memory, tail)
    if disk or other or comment or count != again or start + size != end or count * CENTRAL.size > size:
        raise Malformed("the end record doesn't fit the file")
    return start, end, count


def _directory64(memory: mmap.mmap, tail: int) -> tuple[int, ...]:
    where = tail - LOCATOR64.size
    end = where - END64.size
    if end < 0 or LOCATOR64.unpack_from(memory, where) != (LOCATOR64_SIGNATURE, 0, end, 1):
        raise Malformed("the end record of a large file is missing")
    signature, length, _, _, disk, other, count, again, size, start = END64.unpack_from(memory, end)
    if signature != END64_SIGNATURE or length != END64.size - 12:
        raise Malformed("the end record of a large file is damaged")
    return end, disk, other, count, again, size, start


def _central(memory: mmap.mmap, place: int, end: int) -> tuple[str, int, int, int, int]:
    """Name, size, checksum, place of the local header, and where the next record is."""
    if place + CENTRAL.size > end:
        raise Malformed("the directory of entries is cut off")
    fields = CENTRAL.unpack_from(memory, place)
    signature, _, _, flags, method, _, _, crc, packed, size, names, extras, comment, disk, _, _, offset = fields
    after = place + CENTRAL.size + names + extras
    if signature != CENTRAL_SIGNATURE or flags or method or comment or disk or packed != size or after > end:
        raise Malformed("the directory of entries is damaged, or has a compressed entry")
    name = _name(memory[place + CENTRAL.size : after - extras])
    wide = [size, packed] if size == BIG else []
    wide += [offset] if offset == BIG else []
    values = _wide(memory[after - extras : after], len(wide), name)
    if size == BIG:
        size, packed = values[:2]
    if offset == BIG:
        offset = values[-1]
    if packed != size:
        raise Malformed("it is compressed", name)
    return name, size, crc, offset, after


def _local(memory: mmap.mmap, name: str, size: int, crc: int, offset: int) -> int:
    """Where the content begins, after its own header."""
    if offset + LOCAL.size > len(memory):
        raise Malformed("it lies outside of the file", name)
    signature, _, flags, method, _, _, sum_, packed, plain, names, extras = LOCAL.unpack_from(memory, offset)
    begin: int = offset + LOCAL.size + names + extras
    title = memory[offset + LOCAL.size : offset + LOCAL.size + names]
    shown = min(size, BIG)
    if (signature, flags, method, sum_, packed, plain) != (LOCAL_SIGNATURE, 0, 0, crc, shown, shown):
        raise Malformed("its header is not what the directory says", name)
    if title != name.encode("ascii"):
        raise Malformed("its header has another name than the directory", name)
    if begin % ALIGNMENT:
        raise Malformed(f"it begins at byte {begin}, no multiple of {ALIGNMENT}", name)
    return begin


def _name(raw: bytes) -> str:
    name = raw.decode("latin-1")
    if not NAME.fullmatch(name):
        raise Malformed(f"no entry can be called {name!r}")
    return name


def _wide(extra: bytes, count: int, name: str) -> tuple[Any, ...]:
    """The numbers beyond 32 bits; an entry without any has no extra field."""
    if len(extra) != (4 + 8 * count if count else 0):
        raise Malformed("its extra field has a wrong length", name)
    if not count:
        return ()
    kind, length, *values = struct.unpack(f"<HH{count}Q", extra)
    if (kind, length) != (EXTRA64, 8 * count):
        raise Malformed("its extra field is of an unknown kind", name)
    return tuple(values)
