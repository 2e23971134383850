"""The header of a GGUF file: its metadata, and where each tensor lies.

The ``gguf`` package has a reader too. It makes array objects for every token of the vocabulary, which takes more time
and memory than dequantising all weights.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnc.compiler.checkpoints.errors import CheckpointError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_VERSIONS = (2, 3)


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of the file."""

    name: str
    shape: tuple[int, ...]
    """In torch's order, in elements."""
    kind: int
    """How values are stored, as ``gguf.GGMLQuantizationType`` numbers it."""
    start: int
    """Where in the file its data begin, in bytes."""


@dataclass(frozen=True)
class Header:
    """What a GGUF file says before its data."""

    metadata: dict[str, Any]
    """An array of strings, such as the vocabulary, is given by its length."""
    tensors: tuple[TensorEntry, ...]

    @property
    def architecture(self) -> str:
        """The kind of model, by llama.cpp's name."""
        return str(self.metadata["general.architecture"])


def read_header(path: Path) -> Header:
    """The header of a GGUF file. Raises CheckpointError for a damaged file, and for one part of several."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            header = _read(_Cursor(data))
            count = int(header.metadata.get("split.count", 0))
    except (OverflowError, TypeError, ValueError, struct.error) as error:
        raise CheckpointError(f"{path}: not a GGUF file that can be read: {error}") from error
    if count > 1:
        raise CheckpointError(f"{path}: one of {count} parts; join them with llama-gguf-split --merge")
    return header


@dataclass
class _Cursor:
    """A place in the file. Going past its end raises ValueError."""

    data: mmap.mmap
    place: int = 0

    def skip(self, count: int) -> int:
        """Step over ``count`` bytes; returns where they begin."""
        start, self.place = self.place, self.place + count
        if self.place > len(self.data):
            raise ValueError("it ends within the header")
        return start

    def take(self, form: str) -> tuple[Any, ...]:
        """The next values, in the notation of ``struct``."""
        return struct.unpack_from(f"<{form}", self.data, self.skip(struct.calcsize(f"<{form}")))

    def text(self) -> str:
        (length,) = self.take("Q")
        start = self.skip(length)
        return self.data[start : start + length].decode("utf-8")


def _read(cursor: _Cursor) -> Header:
    if cursor.take("4s") != (b"GGUF",):
        raise ValueError("it does not begin with GGUF")
    version, tensors, entries = cursor.take("IQQ")
    if version not in _VERSIONS:
        raise ValueError(f"it is of version {version}, known are {_VERSIONS}")
    metadata = dict(_entry(cursor) for _ in range(entries))
    if "general.architecture" not in metadata:
        raise ValueError("it names no architecture")
    table = [_tensor(cursor) for _ in range(tensors)]
    alignment = max(1, int(metadata.get("general.alignment", 32)))
    data = -(-cursor.place // alignment) * alignment
    return Header(metadata, tuple(TensorEntry(name, shape, kind, data + at) for name, shape, kind, at in table))


def _entry(cursor: _Cursor) -> tuple[str, Any]:
    key, (kind,) = cursor.text(), cursor.take("I")
    if kind == _STRING:
        return key, cursor.text()
    if kind == _ARRAY:
        return key, _array(cursor)
    return key, cursor.take(_scalar(kind))[0]


def _array(cursor: _Cursor) -> Any:
    kind, count = cursor.take("IQ")
    if kind != _STRING:
        return list(cursor.take(f"{count}{_scalar(kind)}"))
    for _ in range(count):
        cursor.skip(*cursor.take("Q"))
    return count


def _scalar(kind: int) -> str:
    if kind not in _SCALARS:
        raise ValueError(f"its metadata have a value of the unknown type {kind}")
    return _SCALARS[kind]


def _tensor(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name, (rank,) = cursor.text(), cursor.take("I")
    fastest_first = cursor.take(f"{rank}Q")
    kind, at = cursor.take("IQ")
    return name, fastest_first[::-1], kind, at
