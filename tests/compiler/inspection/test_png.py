"""PNG files decoded again, chunk by chunk, pixel by pixel."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from attnc.compiler.inspection.pictures import Panel, Picture
from attnc.compiler.inspection.png import PALETTE, SIDE, encode


def chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    found, at = [], 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        body = data[at + 4 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(body)
        found.append((body[:4], body[4:]))
        at += 12 + length
    return found


def pixels(data: bytes) -> list[bytes]:
    named = dict(chunks(data))
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", named[b"IHDR"])
    assert (depth, colour, rest) == (8, 3, [0, 0, 0])
    assert named[b"PLTE"] == bytes(v for c in PALETTE for v in c)
    raw = zlib.decompress(named[b"IDAT"])
    assert len(raw) == height * (width + 1)
    rows = [raw[i : i + width + 1] for i in range(0, len(raw), width + 1)]
    assert all(row[0] == 0 for row in rows)
    return [row[1:] for row in rows]


def picture(queries: int, keys: int, cell: tuple[int, int], panels: int, seed: int) -> Picture:
    draw = random.Random(seed)
    rows = [
        ["".join(draw.choices("0123", k=-(-keys // cell[1]))) for _ in range(-(-queries // cell[0]))]
        for _ in range(panels)
    ]
    return Picture(
        (queries, keys), (48, 64), cell, (), "", tuple(Panel(f"h = {i}", tuple(r)) for i, r in enumerate(rows))
    )


@pytest.mark.parametrize(
    ("queries", "keys", "cell", "panels"),
    [
        (1, 1, (1, 1), 1),
        (17, 128, (1, 1), 2),
        (1000, 333, (48, 64), 1),
        (3, 5000, (48, 64), 4),
        (999, 999, (48, 64), 3),
    ],
)
def test_every_pixel_is_its_cell(queries: int, keys: int, cell: tuple[int, int], panels: int) -> None:
    made = picture(queries, keys, cell, panels, seed=queries)
    rows = pixels(encode(made))
    height, gap = len(rows), SIDE // 32
    width = (len(rows[0]) - gap * (panels - 1)) // panels
    assert max(width, height) == SIDE and min(width, height) >= gap
    for number, panel in enumerate(made.panels):
        left = number * (width + gap)
        for y in range(height):
            row = panel.rows[y * queries // height // cell[0]]
            assert [str(v) for v in rows[y][left : left + width]] == [
                row[x * keys // width // cell[1]] for x in range(width)
            ]
        assert number == 0 or rows[0][left - gap : left] == bytes([4]) * gap


def test_all_cells_are_seen() -> None:
    """No cell is too narrow for a pixel: 128 of them share 512."""
    rows = pixels(encode(picture(6144, 8192, (48, 64), 1, 5)))
    assert len({y * 6144 // len(rows) // 48 for y in range(len(rows))}) == 128


def test_the_formula_is_in_the_file() -> None:
    texts = [body for kind, body in chunks(encode(picture(8, 8, (1, 1), 1, 0), "k ≤ q")) if kind == b"iTXt"]
    assert texts[0] == b"Title\0\0\0\0\0" + "k ≤ q".encode()
    assert b"8 queries" in texts[1] and b"grey: skipped" in texts[1]
