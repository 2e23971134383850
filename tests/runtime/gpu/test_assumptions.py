from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from gpu_fakes import record_of

from attnc.runtime.gpu.arguments import TensorDescriptor, Value
from attnc.runtime.gpu.assumptions import ELEMENTS, check_assumptions


def reason(kind: str, value: Value, assumed: str = "nothing") -> str | None:
    """Of a kernel with one parameter named ``x``, behind one that always fits."""
    return check_assumptions(record_of(b"", [("first", "i32"), ("x", kind, assumed)]), [0, value])


def memory(dtype: torch.dtype = torch.bfloat16, skip: int = 0) -> torch.Tensor:
    """A tensor that begins ``skip`` elements behind a 16-byte boundary."""
    block = torch.zeros(4096, dtype=torch.uint8)
    start = -block.data_ptr() % 16
    return block[start : start + 2048].view(dtype)[skip:]


@pytest.mark.parametrize(
    ("kind", "value", "assumed"),
    [
        ("*bf16", 0x7F0000000010, "aligned"),
        ("*bf16", 0x7F0000000002, "nothing"),
        ("*bf16", memory(), "aligned"),
        ("*bf16", memory(skip=1), "nothing"),
        ("*fp8e4nv", memory(torch.float8_e4m3fn), "aligned"),
        ("*i1", memory(torch.bool), "nothing"),
        ("i32", 64, "aligned"),
        ("i32", -16, "aligned"),
        ("i32", 0, "aligned"),
        ("i32", 24, "nothing"),
        ("i32", 1, "one"),
        ("i32", (1 << 31) - 1, "nothing"),
        ("i32", -(1 << 31), "nothing"),
        ("i64", 1 << 40, "aligned"),
        ("i64", -(1 << 63), "nothing"),
        ("u8", 255, "nothing"),
        ("i1", True, "nothing"),
        ("fp32", 0.3, "nothing"),
        ("f32", 2, "nothing"),
    ],
)
def test_values_that_the_code_was_compiled_for(kind: str, value: Value, assumed: str) -> None:
    assert reason(kind, value, assumed) is None


@pytest.mark.parametrize(
    ("kind", "value", "assumed", "says"),
    [
        ("*bf16", 0x7F0000000008, "aligned", "x begins at an address that is no multiple of 16"),
        ("*bf16", memory(skip=1), "aligned", "x begins at an address that is no multiple of 16"),
        ("*bf16", memory(torch.float16), "nothing", "x holds torch.float16, the code reads bf16"),
        ("*fp8e4nv", memory(torch.float8_e5m2), "aligned", "x holds torch.float8_e5m2, the code reads fp8e4nv"),
        ("i32", 24, "aligned", "x = 24 is no multiple of 16"),
        ("i64", -8, "aligned", "x = -8 is no multiple of 16"),
        ("i32", 2, "one", "x = 2, the code takes 1 for granted"),
        ("i64", 0, "one", "x = 0, the code takes 1 for granted"),
        ("i32", 1 << 31, "nothing", "x = 2147483648 doesn't fit i32"),
        ("i32", 1 << 31, "aligned", "x = 2147483648 doesn't fit i32"),
        ("i32", -(1 << 31) - 1, "nothing", "x = -2147483649 doesn't fit i32"),
        ("i64", 1 << 63, "nothing", "x = 9223372036854775808 doesn't fit i64"),
        ("u8", 256, "nothing", "x = 256 doesn't fit u8"),
        ("u32", -1, "nothing", "x = -1 doesn't fit u32"),
        ("i1", 2, "nothing", "x = 2 doesn't fit i1"),
    ],
)
def test_values_that_need_other_code(kind: str, value: Value, assumed: str, says: str) -> None:
    assert reason(kind, value, assumed) == says


@pytest.mark.parametrize(
    ("kind", "value"),
    [("*bf16", 1.5), ("i32", 1.0), ("fp32", memory()), ("i32", memory()), ("tensordesc<bf16[64, 64]>", memory())],
)
def test_a_value_of_another_kind_is_an_error(kind: str, value: Value) -> None:
    with pytest.raises(TypeError, match="the kernel flash_bf16: its parameter x is of type"):
        reason(kind, value)


def test_the_number_of_values_is_checked() -> None:
    with pytest.raises(ValueError, match="flash_bf16 has 1 parameters, 2 were given"):
        check_assumptions(record_of(b"", [("x", "i32")]), [1, 2])


GOOD = TensorDescriptor(memory(), (3, 50, 64), (4096, 64, 1), (1, 64, 64))
KIND = "tensordesc<bf16[1, 64, 64]>"


@pytest.mark.parametrize("changes", [{}, {"strides": (64, 192, 1)}, {"shape": (3, 50, 9)}, {"strides": (0, 64, 1)}])
def test_tensors_that_hardware_copies(changes: dict[str, Any]) -> None:
    assert reason(KIND, dataclasses.replace(GOOD, **changes)) is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"base": memory(skip=4)}, "address that is no multiple of 16"),
        ({"base": memory(torch.float16)}, "x holds torch.float16, the code reads bf16"),
        ({"strides": (4096, 64, 2)}, "the last must be 1"),
        ({"strides": (4096, 68, 1)}, "all but the last must be multiples of 16 bytes"),
        ({"strides": (-4096, 64, 1)}, "all but the last must be multiples of 16 bytes"),
        ({"strides": (1 << 39, 64, 1)}, "all but the last must be multiples of 16 bytes"),
        ({"shape": (3, 0, 64)}, "sizes must be positive and fit i32"),
        ({"shape": (1 << 31, 50, 64)}, "sizes must be positive and fit i32"),
        ({"tile": (1, 64, 32)}, "the code copies tiles of (1, 64, 64)"),
        ({"shape": (50, 64), "strides": (64, 1)}, "the code copies tiles of (1, 64, 64)"),
    ],
)
def test_tensors_that_hardware_doesn_t_copy(changes: dict[str, Any], says: str) -> None:
    assert says in str(reason(KIND, dataclasses.replace(GOOD, **changes)))


def test_a_stride_of_eight_fits_bf16_and_not_bytes() -> None:
    """The rule is about bytes: 8 elements of bf16 are 16 bytes, 8 of fp8 are not."""
    flat = dataclasses.replace(GOOD, strides=(4096, 8, 1))
    assert reason(KIND, flat) is None
    narrow = dataclasses.replace(flat, base=memory(torch.float8_e4m3fn))
    assert "multiples of 16 bytes" in str(reason(KIND.replace("bf16", "fp8e4nv"), narrow))


def test_every_dtype_has_one_name() -> None:
    assert len(set(ELEMENTS.values())) == len(ELEMENTS)
