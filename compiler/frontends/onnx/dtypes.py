"""Element types: ONNX's numbers to torch's."""

from __future__ import annotations

from typing import Any

import numpy
import onnx
import torch
from onnx import TensorProto
from torch import Tensor

from attnc.compiler.frontends.onnx.errors import NoForm

TO_TORCH: dict[int, torch.dtype] = {
    TensorProto.FLOAT: torch.float32,
    TensorProto.DOUBLE: torch.float64,
    TensorProto.FLOAT16: torch.float16,
    TensorProto.BFLOAT16: torch.bfloat16,
    TensorProto.FLOAT8E4M3FN: torch.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: torch.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
    TensorProto.INT64: torch.int64,
    TensorProto.INT32: torch.int32,
    TensorProto.INT16: torch.int16,
    TensorProto.INT8: torch.int8,
    TensorProto.UINT8: torch.uint8,
    TensorProto.UINT16: torch.uint16,
    TensorProto.UINT32: torch.uint32,
    TensorProto.UINT64: torch.uint64,
    TensorProto.BOOL: torch.bool,
    TensorProto.COMPLEX64: torch.complex64,
    TensorProto.COMPLEX128: torch.complex128,
}
TO_ONNX = {torch_dtype: number for number, torch_dtype in TO_TORCH.items()}

_BITS = {
    torch.bfloat16: (numpy.uint16, torch.uint16),
    torch.float8_e4m3fn: (numpy.uint8, torch.uint8),
    torch.float8_e4m3fnuz: (numpy.uint8, torch.uint8),
    torch.float8_e5m2: (numpy.uint8, torch.uint8),
    torch.float8_e5m2fnuz: (numpy.uint8, torch.uint8),
}
"""Types numpy has no name for: the integers of their bits."""

STORED_ONLY = frozenset({torch.uint16, torch.uint32, torch.uint64, *(d for d in _BITS if d != torch.bfloat16)})
"""Types torch stores and casts but hardly computes with."""


def dtype_of(number: int) -> torch.dtype:
    """The torch dtype of an ONNX element type. Raises :class:`NoForm` for strings and types of less than a byte."""
    if number not in TO_TORCH:
        raise NoForm(f"torch has no element type {type_name(number)}")
    return TO_TORCH[number]


def type_name(number: int) -> str:
    """``FLOAT``, ``INT64``, … of an element type's number."""
    try:
        return str(TensorProto.DataType.Name(number))
    except ValueError:
        return f"{number}"


def from_array(array: numpy.ndarray[Any, Any], number: int) -> Tensor:
    """A tensor of an ONNX element type that shares the array's memory where it may be written."""
    dtype = dtype_of(number)
    if not array.flags.c_contiguous or not array.flags.writeable:
        array = numpy.array(array, order="C")
    if dtype in _BITS:
        numbers, integers = _BITS[dtype]
        return torch.from_numpy(array.view(numbers)).view(integers).view(dtype)
    return torch.from_numpy(array)


def to_array(tensor: Tensor) -> numpy.ndarray[Any, Any]:
    """The numbers of a tensor as numpy has them; types numpy lacks come in onnx's own (``ml_dtypes``)."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype in _BITS:
        _, integers = _BITS[tensor.dtype]
        named = onnx.helper.tensor_dtype_to_np_dtype(TO_ONNX[tensor.dtype])
        return tensor.view(integers).numpy().view(named)
    return tensor.numpy()
