"""Reading the header of a GGUF file: what the gguf package writes, and what damage does. No torch."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from attnc.compiler.checkpoints.errors import CheckpointError
from attnc.compiler.checkpoints.gguf_header import read_header


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("header") / "h.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, value, add in (
        ("a.u8", 200, writer.add_uint8),
        ("a.i16", -300, writer.add_int16),
        ("a.u64", 1 << 60, writer.add_uint64),
        ("a.f32", 0.5, writer.add_float32),
        ("a.f64", 0.1, writer.add_float64),
        ("a.yes", True, writer.add_bool),
        ("a.text", "naïve 漢", writer.add_string),
        ("a.words", ["one", "zwei", ""], writer.add_array),
        ("a.numbers", [3, 1, 2], writer.add_array),
    ):
        add(key, value)
    generator = np.random.default_rng(3)
    writer.add_tensor("first", generator.standard_normal((3, 5), np.float32))
    blocks = gguf.quantize(generator.standard_normal((2, 64), np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("second.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_and_tensors_are_those_written(written: Path) -> None:
    header = read_header(written)
    assert header.architecture == "llama"
    found = {key: value for key, value in header.metadata.items() if key.startswith("a.")}
    assert found == {
        "a.u8": 200,
        "a.i16": -300,
        "a.u64": 1 << 60,
        "a.f32": 0.5,
        "a.f64": 0.1,
        "a.yes": True,
        "a.text": "naïve 漢",
        "a.words": 3,
        "a.numbers": [3, 1, 2],
    }
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(written).tensors}
    assert [tensor.name for tensor in header.tensors] == list(theirs)
    for tensor in header.tensors:
        their = theirs[tensor.name]
        assert (tensor.kind, tensor.start) == (their.tensor_type, their.data_offset)
        assert tensor.shape == tuple(reversed(their.shape.tolist()))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "mmap an empty file"),
        (b"GGML" + bytes(40), "does not begin with GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "names no architecture"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 62), "ends within the header"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, (1 << 64) - 1), "ends within the header"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"k", 99), "unknown type 99"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 4, 1 << 61), "m.gguf"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 9, 1), "unknown type 9"),
        (b"GGUF" + struct.pack("<IQQQ2sI", 3, 0, 1, 2, b"\xff\xfe", 0) + b"\0", "decode"),
    ],
)
def test_what_is_no_gguf_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_header(path)
    assert "not a GGUF file that can be read" in str(caught.value)


def test_random_damage_gives_a_header_or_an_error(written: Path, tmp_path: Path) -> None:
    """No other exception, no endless loop, no huge allocation."""
    whole, path, draw = written.read_bytes(), tmp_path / "m.gguf", random.Random(7)
    outcomes = set()
    for _ in range(150):
        damaged = bytearray(whole[: draw.choice([len(whole), draw.randrange(4, len(whole))])])
        for _ in range(draw.randrange(3)):
            damaged[draw.randrange(4, len(damaged))] = draw.randrange(256)
        path.write_bytes(bytes(damaged))
        try:
            read_header(path)
            outcomes.add("header")
        except CheckpointError:
            outcomes.add("error")
    assert outcomes == {"header", "error"}
