from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_fakes import SOURCE, record_of

from attnc.runtime.gpu.binary import Packaged, read, sha256, verify_code, write
from attnc.runtime.gpu.record import BinaryError, BinaryRecord, Box, Scratch

PARAMETERS = [
    ("q", "*bf16", "aligned"),
    ("k", "tensordesc<bf16[128, 64]>"),
    ("rows", "i32"),
    ("step", "i64", "one"),
    ("scale", "fp32"),
]


@pytest.fixture
def packaged() -> Packaged:
    code = random.Random(4).randbytes(3001)
    record = record_of(
        code,
        PARAMETERS,
        shared=98304,
        constants={"BLOCK_M": 128, "CAUSAL": True, "LOG2E": 1.4426950408889634},
        scratch=Scratch(512, 128, 0),
        descriptors=(Box((128, 64), 3),),
    )
    return Packaged(record, code, SOURCE)


def test_a_kernel_comes_back_as_it_was_written(packaged: Packaged, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    path = write(folder, *packaged)
    assert path == folder / "flash_bf16.json"
    assert sorted(p.name for p in folder.iterdir()) == ["flash_bf16.cubin", "flash_bf16.json", "flash_bf16.py"]
    assert read(folder, "flash_bf16") == packaged


def test_the_json_has_the_documented_keys(packaged: Packaged, tmp_path: Path) -> None:
    data = json.loads(write(tmp_path, *packaged).read_text())
    assert data == {
        "version": 1,
        "name": "flash_bf16",
        "kernel": "flash",
        "target": "sm_90",
        "backend": "cuda",
        "arch": 90,
        "shared": 98304,
        "num_warps": 4,
        "threads": 128,
        "plan": (1 << 63) - 25,
        "code_sha256": sha256(packaged.code),
        "source_sha256": sha256(SOURCE),
        "parameters": [
            {"name": "q", "type": "*bf16", "assumed": "aligned"},
            {"name": "k", "type": "tensordesc<bf16[128, 64]>", "assumed": "nothing"},
            {"name": "rows", "type": "i32", "assumed": "nothing"},
            {"name": "step", "type": "i64", "assumed": "one"},
            {"name": "scale", "type": "fp32", "assumed": "nothing"},
        ],
        "constants": {"BLOCK_M": 128, "CAUSAL": True, "LOG2E": 1.4426950408889634},
        "scratch": {"global": 512, "global_align": 128, "profile": 0},
        "descriptors": [{"block": [128, 64], "swizzle": 3}],
    }


def test_amd_code_is_an_hsaco(tmp_path: Path) -> None:
    code = random.Random(5).randbytes(77)
    record = record_of(code, [], backend="hip", arch="gfx942", target="gfx942", threads=256)
    write(tmp_path, record, code, SOURCE)
    assert (tmp_path / "flash_bf16.hsaco").read_bytes() == code
    assert read(tmp_path, "flash_bf16").record == record


def test_a_kernel_replaces_its_older_self(packaged: Packaged, tmp_path: Path) -> None:
    write(tmp_path, *packaged)
    code = packaged.code[::-1]
    record = record_of(code, PARAMETERS[:1])
    write(tmp_path, record, code, SOURCE)
    assert read(tmp_path, "flash_bf16") == (record, code, SOURCE)


def test_the_json_comes_last(packaged: Packaged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, seen = os.replace, []

    def full_disk(old: Path, new: Path) -> None:
        seen.append(Path(new).name)
        if len(seen) == 3:
            raise OSError(28, "No space left on device")
        replace(old, new)

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path, *packaged)
    assert seen == ["flash_bf16.cubin", "flash_bf16.py", "flash_bf16.json"]
    assert sorted(p.name for p in tmp_path.iterdir()) == seen[:2], "a temporary file was left"
    with pytest.raises(BinaryError, match=r"flash_bf16\.json can't be read \(No such file"):
        read(tmp_path, "flash_bf16")


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("suffix", ["cubin", "py"])
@pytest.mark.parametrize("damage", [flip, lambda content: content[:-1], lambda content: b""])
def test_a_damaged_file_is_refused(
    suffix: str, damage: Callable[[bytes], bytes], packaged: Packaged, tmp_path: Path
) -> None:
    write(tmp_path, *packaged)
    file = tmp_path / f"flash_bf16.{suffix}"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(BinaryError) as caught:
        read(tmp_path, "flash_bf16")
    message = str(caught.value)
    assert str(tmp_path / "flash_bf16.json") in message
    assert f"flash_bf16.{suffix}" in message
    assert "Compile the kernel again" in message


@pytest.mark.parametrize("suffix", ["cubin", "py", "json"])
def test_a_missing_file_is_named(suffix: str, packaged: Packaged, tmp_path: Path) -> None:
    write(tmp_path, *packaged)
    (tmp_path / f"flash_bf16.{suffix}").unlink()
    with pytest.raises(BinaryError, match=rf"flash_bf16\.{suffix} can't be read"):
        read(tmp_path, "flash_bf16")


def edited(key: str, value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda data: {**data, key: value}


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (edited("version", 2), "version 2, this build of attnc reads 1"),
        (lambda data: {k: v for k, v in data.items() if k != "version"}, "version None"),
        (lambda data: {k: v for k, v in data.items() if k != "shared"}, "no 'shared'"),
        (edited("threads", "128"), "'threads' is '128'"),
        (edited("shared", True), "'shared' is True"),
        (edited("arch", None), "'arch' is None"),
        (edited("backend", "metal"), "'backend' is 'metal', not one of cuda, hip"),
        (edited("parameters", {}), "'parameters' is {}"),
        (edited("parameters", ["q"]), "a parameter is 'q'"),
        (edited("parameters", [{"name": "q", "type": "*bf16", "assumed": "even"}]), "'assumed' is 'even'"),
        (edited("scratch", {"global": 0, "profile": 0}), "no 'global_align'"),
        (edited("descriptors", []), "1 parameters are descriptors, 0 are described"),
        (edited("descriptors", [{"block": ["64"], "swizzle": 3}]), "a size of a block is '64'"),
        (edited("name", "other"), "describes 'other'"),
        (lambda data: [data], "the text is"),
    ],
)
def test_a_wrong_record_is_refused(
    edit: Callable[[dict[str, Any]], Any], says: str, packaged: Packaged, tmp_path: Path
) -> None:
    path = write(tmp_path, *packaged)
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))
    with pytest.raises(BinaryError) as caught:
        read(tmp_path, "flash_bf16")
    assert says in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe"])
def test_a_record_that_is_no_json_is_refused(content: bytes, packaged: Packaged, tmp_path: Path) -> None:
    write(tmp_path, *packaged).write_bytes(content)
    with pytest.raises(BinaryError, match=r"reading the packaged kernel .*flash_bf16\.json"):
        read(tmp_path, "flash_bf16")


def test_what_doesn_t_belong_together_isn_t_written(packaged: Packaged, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"digest of flash_bf16\.cubin"):
        write(tmp_path, packaged.record, flip(packaged.code), SOURCE)
    with pytest.raises(ValueError, match=r"digest of flash_bf16\.py"):
        write(tmp_path, packaged.record, packaged.code, SOURCE + " ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a b", "ü"])
def test_a_name_that_is_none_for_a_file_isn_t_written(name: str, tmp_path: Path) -> None:
    record = record_of(b"", [], name=name)
    with pytest.raises(ValueError, match="a name of files"):
        write(tmp_path / "inner", record, b"", SOURCE)
    assert list(tmp_path.iterdir()) == []


def test_damaged_code_is_told_from_whole(packaged: Packaged) -> None:
    verify_code(packaged.record, packaged.code)
    with pytest.raises(BinaryError, match=r"flash_bf16 for sm_90: its machine code \(3001 bytes\)"):
        verify_code(packaged.record, flip(packaged.code))


def test_json_round_trip_of_a_record(packaged: Packaged) -> None:
    assert BinaryRecord.from_json(packaged.record.to_json()) == packaged.record
