"""Writes the container of an artifact: the same entries always give the same bytes."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

from attnc.runtime.artifact.layout import (
    ALIGNMENT,
    BIG,
    CENTRAL,
    CENTRAL_SIGNATURE,
    DATE,
    END,
    END64,
    END64_SIGNATURE,
    END_SIGNATURE,
    EXTRA64,
    EXTRA_PADDING,
    LOCAL,
    LOCAL_SIGNATURE,
    LOCATOR64,
    LOCATOR64_SIGNATURE,
    MANY,
    NAME,
)

Chunk = bytes | memoryview


@dataclass(frozen=True)
class Written:
    """One entry of the file."""

    name: str
    size: int
    """In bytes."""
    sha256: str
    crc: int
    offset: int
    """Of its local header."""


class ContainerWriter:
    """Writes entries one after the other to a stream that can seek, from its beginning; then :meth:`finish`."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._written: list[Written] = []

    def add(self, name: str, chunks: Iterable[Chunk], size: int) -> Written:
        """Write an entry of ``size`` bytes. Raises ValueError for a name none can have, and for another size."""
        if not NAME.fullmatch(name) or name in {entry.name for entry in self._written}:
            raise ValueError(f"writing an artifact: no entry can be called {name!r}, or one is")
        offset = self._stream.tell()
        self._stream.write(_local(name, size, 0, offset))
        digest, crc, count = hashlib.sha256(), 0, 0
        for chunk in chunks:
            self._stream.write(chunk)
            digest.update(chunk)
            crc = zlib.crc32(chunk, crc)
            count += len(chunk)
        if count != size:
            raise ValueError(f"writing {name}: {count} bytes, {size} were announced")
        end = self._stream.tell()
        self._stream.seek(offset)
        self._stream.write(_local(name, size, crc, offset))
        self._stream.seek(end)
        entry = Written(name, size, digest.hexdigest(), crc, offset)
        self._written.append(entry)
        return entry

    def finish(self) -> None:
        """Write the central directory."""
        start = self._stream.tell()
        for entry in self._written:
            self._stream.write(_central(entry))
        size, count = self._stream.tell() - start, len(self._written)
        if start >= BIG or count >= MANY:
            end = self._stream.tell()
            self._stream.write(END64.pack(END64_SIGNATURE, END64.size - 12, 45, 45, 0, 0, count, count, size, start))
            self._stream.write(LOCATOR64.pack(LOCATOR64_SIGNATURE, 0, end, 1))
        few = min(count, MANY)
        self._stream.write(END.pack(END_SIGNATURE, 0, 0, few, few, size, min(start, BIG), 0))


def _local(name: str, size: int, crc: int, offset: int) -> bytes:
    """The local header, padded so that the content is aligned."""
    extra = struct.pack("<HHQQ", EXTRA64, 16, size, size) if size >= BIG else b""
    begin = offset + LOCAL.size + len(name) + len(extra) + 6
    padding = -begin % ALIGNMENT
    extra += struct.pack("<HHH", EXTRA_PADDING, 2 + padding, ALIGNMENT) + bytes(padding)
    shown, version = min(size, BIG), 45 if size >= BIG else 20
    head = LOCAL.pack(LOCAL_SIGNATURE, version, 0, 0, 0, DATE, crc, shown, shown, len(name), len(extra))
    return head + name.encode("ascii") + extra


def _central(entry: Written) -> bytes:
    wide = [entry.size, entry.size] if entry.size >= BIG else []
    wide += [entry.offset] if entry.offset >= BIG else []
    extra = struct.pack(f"<HH{len(wide)}Q", EXTRA64, 8 * len(wide), *wide) if wide else b""
    size, version = min(entry.size, BIG), 45 if wide else 20
    made_by, attributes = (3 << 8) | version, 0o100644 << 16  # Unix, a plain file that all may read
    name = entry.name.encode("ascii")
    numbers = (made_by, version, 0, 0, 0, DATE, entry.crc, size, size, len(name), len(extra), 0, 0, 0, attributes)
    return CENTRAL.pack(CENTRAL_SIGNATURE, *numbers, min(entry.offset, BIG)) + name + extra
