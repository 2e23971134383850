"""Numbers in integers with a scale and a zero point."""

from __future__ import annotations

import torch
from torch import Tensor

from attnc.compiler.frontends.onnx.dtypes import dtype_of
from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.known import Int
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.ops.convolution import convolved
from attnc.compiler.frontends.onnx.ops.float8 import FLOAT8, to_float8
from attnc.compiler.frontends.onnx.table import op

_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.uint16)


def saturated(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Whole numbers as integers of ``dtype``; those out of its range are its bounds."""
    bounds = torch.iinfo(dtype)
    return torch.clamp(x, bounds.min, bounds.max).to(torch.int32).to(dtype)


def _spread(node: Node, x: Tensor, part: Tensor) -> Tensor:
    """Scales or zero points in the shape of x: one, one for each place of an axis, or one for each block of it."""
    if part.dim() == 0 or (part.dim() == 1 and isinstance(part.shape[0], int) and part.shape[0] == 1):
        return part.reshape(())
    axis, block = node.get("axis", 1) % x.dim(), node.get("block_size", 0)
    if not block:
        if part.dim() != 1:
            raise NoForm(f"a scale of {part.dim()} dimensions without blocks")
        shape: list[Int] = [1] * x.dim()
        shape[axis] = part.shape[0]
        return part.reshape(shape)
    return part.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])


@op("QuantizeLinear", stored=True)
def quantize(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """x/scale rounded to the nearest (even) integer, moved by the zero point, within the type's bounds.

    Raises NoForm for half precision, whose quotient is rounded in more than one way.
    """
    dtype = _wanted(node, zero)
    if x.dtype != torch.float32 or scale.dtype != torch.float32 or node.get("precision", 1) not in (0, 1):
        raise NoForm(f"a quotient of {str(x.dtype).removeprefix('torch.')}: its rounding isn't said")
    quotient = x / _spread(node, x, scale)
    if dtype in FLOAT8:
        return to_float8(quotient, dtype, saturate=bool(node.get("saturate", 1)))
    if dtype not in _INTEGERS:
        raise NoForm(f"quantisation to {str(dtype).removeprefix('torch.')}")
    rounded = torch.round(quotient)
    if zero is not None:
        rounded = rounded + _spread(node, x, zero.to(torch.int32)).to(torch.float32)
    return saturated(rounded, dtype)


def _wanted(node: Node, zero: Tensor | None) -> torch.dtype:
    if zero is not None:
        return zero.dtype
    return dtype_of(node.get("output_dtype")) if node.get("output_dtype", 0) else torch.uint8


@op("DequantizeLinear", stored=True)
def dequantize(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """(x − zero point)·scale in the scale's type."""
    dtype = dtype_of(node.get("output_dtype")) if node.get("output_dtype", 0) else scale.dtype
    if dtype != scale.dtype or (x.dtype not in (torch.int8, torch.uint8, *FLOAT8) and dtype != torch.float32):
        raise NoForm("integers of more than 8 bits in half precision, or a type unlike the scale's")
    factor = _spread(node, x, scale)
    if x.dtype in FLOAT8:
        number = x.to(torch.float32)
        number = number if zero is None else number - _spread(node, x, zero.to(torch.float32))
        return (number * factor.to(torch.float32)).to(dtype)
    wide = x.to(torch.int32)
    if zero is not None:
        wide = wide - _spread(node, x, zero.to(torch.int32))
    return wide.to(dtype) * factor


def _requantized(total: Tensor, factor: Tensor, zero: Tensor) -> Tensor:
    """A sum of products of integers in the scale and zero point of an output."""
    rounded = torch.round(total.to(torch.float32) * factor)
    return saturated(rounded + zero.to(torch.float32), zero.dtype)


def _along(part: Tensor, dim: int) -> Tensor:
    """One number as it is; a list of them along rows (−2) or columns (−1)."""
    if part.dim() == 0 or (part.dim() == 1 and isinstance(part.shape[0], int) and part.shape[0] == 1):
        return part.reshape(())
    return part.unsqueeze(-1) if part.dim() == 1 and dim == -2 else part


@op("QLinearMatMul")
def quantized_matmul(
    node: Node,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    """A product of quantised matrices, quantised."""
    left = a.to(torch.int32) - _along(a_zero.to(torch.int32), -2)
    right = b.to(torch.int32) - _along(b_zero.to(torch.int32), -1)
    scales = _along(a_scale.to(torch.float32), -2) * _along(b_scale.to(torch.float32), -1)
    if y_scale.numel() != 1:
        raise NoForm("an output with several scales")
    factor = scales / y_scale.to(torch.float32).reshape(())
    return _requantized(torch.matmul(left, right), factor, y_zero.reshape(()))


def _integer_convolution(node: Node, x: Tensor, x_zero: Tensor | None, w: Tensor, w_zero: Tensor | None) -> Tensor:
    """A convolution of 8-bit integers less their zero points, in 32 bits; exact in float64."""
    left, right = x.to(torch.float64), w.to(torch.float64)
    if x_zero is not None:
        left = left - x_zero.to(torch.float64).reshape(())
    if w_zero is not None:
        right = right - w_zero.to(torch.float64).reshape((-1,) + (1,) * (w.dim() - 1))
    return convolved(node, left, right).to(torch.int32)


@op("ConvInteger")
def integer_convolution(
    node: Node, x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None
) -> Tensor:
    """A convolution of 8-bit integers less their zero points."""
    return _integer_convolution(node, x, x_zero, w, w_zero)


@op("QLinearConv")
def quantized_convolution(
    node: Node,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    """A convolution of quantised tensors, quantised; the bias has the product of both scales."""
    total = _integer_convolution(node, x, x_zero, w, w_zero)
    channels = (-1,) + (1,) * (w.dim() - 2)
    if bias is not None:
        total = total + bias.reshape(channels)
    factor = x_scale.reshape(()) * w_scale.reshape(channels) / y_scale.reshape(())
    return _requantized(total, factor, y_zero.reshape(()))
