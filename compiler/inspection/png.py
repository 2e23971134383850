"""A picture as a PNG file, with the standard library: one byte a pixel and a palette."""

from __future__ import annotations

import struct
import zlib

from attnc.compiler.inspection.pictures import Picture

SIDE = 512
"""Pixels of a panel's longer side; the shorter has a 32nd at least."""
PALETTE = ((232, 232, 232), (246, 214, 165), (224, 124, 32), (32, 92, 168), (255, 255, 255))
"""Skipped, hidden, partial, full; and the gap between panels."""
COLOURS = "grey: skipped, blue: whole tiles, orange: visible in tiles masked pair by pair, pale orange: hidden there"


def encode(picture: Picture, title: str = "") -> bytes:
    """The bytes of the file: panels side by side, ``title`` and caption in its text chunks."""
    rows, columns = (_cells(n, c, max(picture.lengths)) for n, c in zip(picture.lengths, picture.cell, strict=True))
    gap = bytes([len(PALETTE) - 1]) * (SIDE // 32)
    lines = []
    for y in rows:
        parts = (bytes(int(panel.rows[y][x]) for x in columns) for panel in picture.panels)
        lines.append(b"\0" + gap.join(parts))
    header = struct.pack(">IIBBBBB", len(lines[0]) - 1, len(lines), 8, 3, 0, 0, 0)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"PLTE", bytes(value for colour in PALETTE for value in colour)),
            _text("Title", title),
            _text("Description", f"{picture.caption()}; {COLOURS}"),
            _chunk(b"IDAT", zlib.compress(b"".join(lines), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _cells(length: int, cell: int, longest: int) -> list[int]:
    """The cell that each pixel of a side shows."""
    pixels = max(SIDE // 32, SIDE * length // longest)
    return [i * length // pixels // cell for i in range(pixels)]


def _text(key: str, text: str) -> bytes:
    return _chunk(b"iTXt", key.encode() + b"\0\0\0\0\0" + text.encode())


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
