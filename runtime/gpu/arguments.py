"""Values of one call as the bytes that machine code reads, in the order Triton gives its parameters.

A parameter assumed to be 1 is left out, a descriptor becomes its tensor map (128 bytes) followed by its shape (i32) and
strides (i64), and two pointers follow all of them: scratch memory and profiling scratch memory.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from attnc.runtime.gpu.record import BinaryRecord, Box, Parameter

SCALARS = {
    "i1": "b",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "fp32": "f",
    "f32": "f",
    "fp64": "d",
}
"""Triton's type of a number → its :mod:`struct` code, whose size it is aligned to."""

MAP_BYTES = 128
MAP_ALIGNMENT = 64
_MAP = f"{MAP_BYTES}s"


@dataclass(frozen=True)
class TensorDescriptor:
    """A tensor to be copied by tiles. Rank 1 to 5."""

    base: torch.Tensor
    """Its first element is the first of the tensor."""
    shape: tuple[int, ...]
    """In elements, outermost first."""
    strides: tuple[int, ...]
    """In elements; the last is 1."""
    tile: tuple[int, ...]
    """Block shape the kernel was written for, in elements."""
    outside: Literal["zero", "nan"] = "zero"
    """What elements outside of the tensor read as."""


Value = torch.Tensor | int | float | TensorDescriptor
"""Of a pointer: a tensor, or an address in bytes."""

Encoder = Callable[[str, TensorDescriptor, Box], bytes]
"""``(element type, descriptor, box) -> its tensor map``, 128 bytes."""


@dataclass(frozen=True)
class Layout:
    """Where each parameter of the machine code lies in one buffer."""

    format: struct.Struct
    offsets: tuple[int, ...]
    """In bytes, one per parameter."""
    sizes: tuple[int, ...]
    """In bytes, one per parameter."""


def layout(record: BinaryRecord) -> Layout:
    """The layout of the record's parameters. Raises ValueError for a type that can't be passed."""
    text, offset = "<", 0
    offsets, sizes = [], []
    for code in _codes(record):
        size = struct.calcsize("<" + code)
        padding = -offset % (MAP_ALIGNMENT if code == _MAP else size)
        text += f"{padding}x{code}"
        offsets.append(offset + padding)
        sizes.append(size)
        offset += padding + size
    return Layout(struct.Struct(text), tuple(offsets), tuple(sizes))


class Aligned:
    """``size`` bytes, zeroed, where a tensor map may lie."""

    def __init__(self, size: int) -> None:
        self._buffer = ctypes.create_string_buffer(size + MAP_ALIGNMENT)
        start = ctypes.addressof(self._buffer)
        self.address = start + -start % MAP_ALIGNMENT


class Arguments:
    """The packed values of one launch, as ``void **kernelParams``. Drivers copy them before the call returns."""

    def __init__(self, layout: Layout, numbers: Sequence[int | float | bytes]) -> None:
        self._memory = Aligned(layout.format.size)
        base = self._memory.address
        ctypes.memmove(base, layout.format.pack(*numbers), layout.format.size)
        self.pointers = (ctypes.c_void_p * len(layout.offsets))(*(base + offset for offset in layout.offsets))


def numbers(
    record: BinaryRecord, values: Sequence[Value], scratch: Sequence[int], encode: Encoder
) -> list[int | float | bytes]:
    """One number per parameter of the machine code; a tensor map as its bytes.

    ``values``: one per parameter of the record. ``scratch``: addresses of scratch memory and of that
    for profiles, 0 for none.
    """
    boxes = iter(record.descriptors)
    found: list[int | float | bytes] = []
    for parameter, value in zip(record.parameters, values, strict=True):
        if isinstance(value, TensorDescriptor):
            found += (encode(parameter.element, value, next(boxes)), *value.shape, *value.strides)
        elif parameter.assumed != "one":
            found.append(_number(parameter, value))
    return [*found, *scratch]


def address(value: torch.Tensor | int) -> int:
    """In bytes."""
    return value.data_ptr() if isinstance(value, torch.Tensor) else value


def _codes(record: BinaryRecord) -> Iterator[str]:
    for parameter in record.parameters:
        if parameter.is_descriptor:
            rank = len(parameter.tile)
            yield from (_MAP, *("i" * rank), *("q" * rank))
        elif parameter.is_pointer:
            yield "Q"
        elif parameter.type not in SCALARS:
            raise ValueError(
                f"the kernel {record.name}: its parameter {parameter.name} is of type {parameter.type}, which can't be "
                f"passed; known are pointers, descriptors, {', '.join(SCALARS)}"
            )
        elif parameter.assumed != "one":
            yield SCALARS[parameter.type]
    yield from "QQ"


def _number(parameter: Parameter, value: torch.Tensor | int | float) -> int | float:
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    if SCALARS.get(parameter.type) == "f":
        return ctypes.c_float(value).value  # rounds to infinity where struct would refuse
    return value
