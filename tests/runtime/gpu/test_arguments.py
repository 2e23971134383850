from __future__ import annotations

import ctypes
import math
import random

import numpy as np
import pytest
import torch
from gpu_fakes import record_of

from attnc.runtime.gpu.arguments import Arguments, TensorDescriptor, layout, numbers
from attnc.runtime.gpu.record import BinaryRecord, Box, Parameter

DTYPES = {
    "i1": "i1", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8",
    "fp32": "f4", "f32": "f4", "fp64": "f8",
}  # fmt: skip
"""Triton's type → numpy's, little-endian."""


def no_map(element: str, value: TensorDescriptor, box: Box) -> bytes:
    raise AssertionError("no descriptor here")


def packed(record: BinaryRecord, values: list[int | float]) -> list[bytes]:
    """The bytes that each element of ``kernelParams`` points at."""
    placed = layout(record)
    arguments = Arguments(placed, numbers(record, values, (0xAB << 56, 3), no_map))
    return [ctypes.string_at(p, size) for p, size in zip(arguments.pointers, placed.sizes, strict=True)]


def draw(kind: str, random: random.Random) -> int | float:
    if "f" in kind:
        return random.uniform(-1e30, 1e30)
    if kind == "i1":
        return random.randrange(2)
    limits = np.iinfo(DTYPES[kind])
    return random.choice([int(limits.min), int(limits.max), random.randint(int(limits.min), int(limits.max))])


@pytest.mark.parametrize("seed", range(20))
def test_numbers_of_all_types_in_any_order(seed: int) -> None:
    chosen = random.Random(seed)
    kinds = chosen.choices([*DTYPES, "*bf16"], k=chosen.randint(0, 40))
    values = [chosen.getrandbits(64) if kind == "*bf16" else draw(kind, chosen) for kind in kinds]
    record = record_of(b"", [(f"a{i}", kind) for i, kind in enumerate(kinds)])
    expected = [
        np.array(value, "u8" if kind == "*bf16" else DTYPES[kind]).tobytes()
        for kind, value in zip(kinds, values, strict=True)
    ]
    assert packed(record, values) == [*expected, b"\0" * 7 + b"\xab", b"\3" + b"\0" * 7]


def test_a_parameter_assumed_one_is_left_out() -> None:
    parameters = [("q", "*bf16"), ("step", "i64", "one"), ("rows", "i32", "one"), ("last", "i32", "aligned")]
    assert packed(record_of(b"", parameters), [16, 1, 1, 32])[:-2] == [b"\x10" + b"\0" * 7, b"\x20\0\0\0"]


def test_each_parameter_lies_at_its_natural_alignment() -> None:
    kinds = ["i8", "*fp32", "i16", "fp64", "i8", "i32", "u8", "i64"]
    placed = layout(record_of(b"", [(f"a{i}", kind) for i, kind in enumerate(kinds)]))
    assert placed.offsets == (0, 8, 16, 24, 32, 36, 40, 48, 56, 64)
    assert placed.sizes == (1, 8, 2, 8, 1, 4, 1, 8, 8, 8)


@pytest.mark.parametrize(("value", "expected"), [(1e39, math.inf), (-1e39, -math.inf), (math.nan, math.nan), (7, 7.0)])
def test_a_float_beyond_fp32_becomes_infinite(value: float, expected: float) -> None:
    found = np.frombuffer(packed(record_of(b"", [("scale", "fp32")]), [value])[0], "f4")[0]
    assert np.array_equal(found, np.float32(expected), equal_nan=True)


def test_a_tensor_is_its_address() -> None:
    tensor = torch.arange(9.0)[3:]
    record = record_of(b"", [("x", "*fp32")])
    assert numbers(record, [tensor], (0, 0), no_map) == [tensor.data_ptr(), 0, 0]


def test_a_descriptor_is_a_map_then_its_shape_then_its_strides() -> None:
    kinds = [("n", "i32"), ("k", "tensordesc<bf16[1, 128, 64]>"), ("v", "tensordesc<fp16[32]>"), ("s", "i64")]
    boxes = (Box((1, 128, 32), 2), Box((32,), 0))
    record = record_of(b"", kinds, descriptors=boxes)
    base = torch.zeros(4)
    k = TensorDescriptor(base, (5, 6, 7), (1 << 40, 8, 1), (1, 128, 64))
    v = TensorDescriptor(base, (9,), (1,), (32,))
    asked = []

    def encode(element: str, value: TensorDescriptor, box: Box) -> bytes:
        asked.append((element, value, box))
        return bytes([len(asked)]) * 128

    found = numbers(record, [3, k, v, -1], (0, 0), encode)
    assert found == [3, b"\1" * 128, 5, 6, 7, 1 << 40, 8, 1, b"\2" * 128, 9, 1, -1, 0, 0]
    assert asked == [("bf16", k, boxes[0]), ("fp16", v, boxes[1])]
    placed = layout(record)
    assert placed.sizes == (4, 128, 4, 4, 4, 8, 8, 8, 128, 4, 8, 8, 8, 8)
    arguments = Arguments(placed, found)
    pointers = [pointer or 0 for pointer in arguments.pointers]
    assert pointers[1] % 64 == pointers[8] % 64 == 0
    assert ctypes.string_at(pointers[1], 128) == b"\1" * 128
    assert ctypes.string_at(pointers[5], 8) == b"\0" * 5 + b"\1\0\0"


def test_a_type_that_can_t_be_passed_is_refused() -> None:
    with pytest.raises(ValueError, match="parameter w is of type bf16, which can't be passed"):
        layout(record_of(b"", [("w", "bf16")]))


@pytest.mark.parametrize(
    ("kind", "element", "tile"),
    [
        ("tensordesc<bf16[128, 64]>", "bf16", (128, 64)),
        ("tensordesc<fp8e4nv[16]>", "fp8e4nv", (16,)),
        ("tensordesc<fp16[1,64,8],NVMMASharedLayout([0])>", "fp16", (1, 64, 8)),
    ],
)
def test_the_type_of_a_descriptor_is_read(kind: str, element: str, tile: tuple[int, ...]) -> None:
    parameter = Parameter("k", kind)
    assert parameter.is_descriptor and not parameter.is_pointer
    assert (parameter.element, parameter.tile) == (element, tile)
