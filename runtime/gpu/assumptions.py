"""Whether one call's values are what the machine code of a kernel was compiled for, or why not.

Code compiled ahead of time holds for some calls only: vector loads want addresses and strides that are multiples of
16, a stride of 1 is no parameter, a number has the width it was given. Other calls are not wrong; they need code
compiled for them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch

from attnc.runtime.gpu.arguments import SCALARS, TensorDescriptor, Value, address
from attnc.runtime.gpu.record import BinaryRecord, Parameter

ELEMENTS = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.float8_e4m3fnuz: "fp8e4b8",
    torch.float8_e5m2: "fp8e5",
    torch.float8_e5m2fnuz: "fp8e5b16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "i1",
}
"""torch dtype → Triton's name of it."""

ALIGNMENT = 16


def check_assumptions(record: BinaryRecord, values: Sequence[Value]) -> str | None:
    """None where the machine code can run with ``values``, else the first reason why it can't.

    Raises ValueError where the number of values is not that of the record's parameters, and TypeError where a value is
    of another kind than its parameter: no code can run with such.
    """
    if len(values) != len(record.parameters):
        raise ValueError(f"the kernel {record.name} has {len(record.parameters)} parameters, {len(values)} were given")
    for parameter, value in zip(record.parameters, values, strict=True):
        reason = _reason(record, parameter, value)
        if reason is not None:
            return reason
    return None


def _reason(record: BinaryRecord, parameter: Parameter, value: Value) -> str | None:
    if parameter.is_descriptor and isinstance(value, TensorDescriptor):
        return _descriptor(parameter, value)
    if parameter.is_pointer and isinstance(value, torch.Tensor | int):
        return _pointer(parameter, value)
    if parameter.type.startswith("f") and isinstance(value, int | float):
        return None
    if parameter.type[0] in "iu" and isinstance(value, int):
        return _integer(parameter, value)
    raise TypeError(
        f"the kernel {record.name}: its parameter {parameter.name} is of type {parameter.type} and was given "
        f"{type(value).__name__}"
    )


def _pointer(parameter: Parameter, value: torch.Tensor | int) -> str | None:
    if isinstance(value, torch.Tensor) and ELEMENTS.get(value.dtype) != parameter.element:
        return f"{parameter.name} holds {value.dtype}, the code reads {parameter.element}"
    if parameter.assumed == "aligned" and address(value) % ALIGNMENT:
        return f"{parameter.name} begins at an address that is no multiple of {ALIGNMENT}"
    return None


def _integer(parameter: Parameter, value: int) -> str | None:
    low, high = _range(parameter.type)
    if not low <= value <= high:
        return f"{parameter.name} = {value} doesn't fit {parameter.type}"
    if parameter.assumed == "one" and value != 1:
        return f"{parameter.name} = {value}, the code takes 1 for granted"
    if parameter.assumed == "aligned" and value % ALIGNMENT:
        return f"{parameter.name} = {value} is no multiple of {ALIGNMENT}"
    return None


def _range(kind: str) -> tuple[int, int]:
    """Least and greatest value of Triton's integer type, both included."""
    if kind == "i1":
        return 0, 1
    bits = 8 * struct.calcsize("<" + SCALARS[kind])
    return (0, (1 << bits) - 1) if kind.startswith("u") else (-1 << (bits - 1), (1 << (bits - 1)) - 1)


def _descriptor(parameter: Parameter, value: TensorDescriptor) -> str | None:
    """The tensor map's own rules: Tensor Memory Access knows no other tensors."""
    name, width = parameter.name, value.base.element_size()
    if ELEMENTS.get(value.base.dtype) != parameter.element:
        return f"{name} holds {value.base.dtype}, the code reads {parameter.element}"
    if not value.tile == parameter.tile or not len(value.shape) == len(value.strides) == len(value.tile):
        return f"{name} has shape {value.shape} and tiles of {value.tile}, the code copies tiles of {parameter.tile}"
    if value.base.data_ptr() % ALIGNMENT:
        return f"{name} begins at an address that is no multiple of {ALIGNMENT}"
    if value.strides[-1] != 1:
        return f"{name} has strides {value.strides}, the last must be 1"
    if any(stride * width % ALIGNMENT or not 0 <= stride * width < 1 << 40 for stride in value.strides[:-1]):
        return f"{name} has strides {value.strides} of {width} bytes; all but the last must be multiples of 16 bytes"
    if not all(1 <= size < 1 << 31 for size in value.shape):
        return f"{name} has shape {value.shape}, sizes must be positive and fit i32"
    return None
