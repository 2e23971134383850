"""Fourier transforms and what goes with them; a complex number is a last dimension of length 2."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from attnc.compiler.frontends.onnx.dtypes import dtype_of
from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.known import Constant, Int, Value, ints, number, untraced
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.table import ALL, op


@op("DFT", since=17, until=19, known=(1,))
def transform_along_attribute(node: Node, x: Tensor, length: Value = None) -> Tensor:
    """The discrete Fourier transform along the dimension that an attribute names."""
    return _transformed(node, x, length, node.get("axis", 1))


@op("DFT", since=20, known=(1, 2))
def transform(node: Node, x: Tensor, length: Value = None, axis: Value = None) -> Tensor:
    """The discrete Fourier transform along a dimension, by default the last but that of complex numbers."""
    return _transformed(node, x, length, -2 if axis is None else int(number(axis, "the axis")))


def _transformed(node: Node, x: Tensor, length: Value, axis: int) -> Tensor:
    axis, inverse, onesided = axis % x.dim(), node.get("inverse", 0), node.get("onesided", 0)
    if axis == x.dim() - 1:
        raise NoForm("a transform along real and imaginary parts")
    count = None if length is None else ints(length, "the length")[0]
    given = complex_of(x)
    if inverse and onesided:
        made: Tensor = torch.fft.irfft(given, count, axis)
        return made.unsqueeze(-1)
    if inverse:
        return torch.view_as_real(torch.fft.ifft(given, count, axis))
    return _forward(given, count, axis, onesided=bool(onesided))


def complex_of(x: Tensor) -> Tensor:
    """x [..., 1] real or [..., 2] complex as numbers of torch's own. Raises NoForm for half precision."""
    if x.dtype not in (torch.float32, torch.float64):
        raise NoForm(f"a transform of {str(x.dtype).removeprefix('torch.')}")
    width = x.shape[-1]
    if not isinstance(width, int) or width not in (1, 2):
        raise NoForm(f"numbers of {width} parts")
    return x.squeeze(-1) if width == 1 else torch.view_as_complex(x.contiguous())


def _forward(x: Tensor, length: Int | None, axis: int, *, onesided: bool) -> Tensor:
    if onesided and x.is_complex():
        raise NoForm("one side of the transform of complex numbers")
    made = torch.fft.rfft(x, length, axis) if onesided else torch.fft.fft(x, length, axis)
    return torch.view_as_real(made)


@op("STFT", known=(1, 3))
def short_time(node: Node, x: Tensor, step: Value, window: Tensor | None = None, length: Value = None) -> Tensor:
    """Transforms of frames [batch, frames, bins, 2] of a signal [batch, length, 1 or 2], each by a window."""
    (hop,) = ints(step, "the step")
    if length is None and window is None:
        raise NoForm("neither a frame's length nor a window")
    size = window.shape[0] if length is None and window is not None else ints(length, "a frame's length")[0]
    if not (isinstance(size, int) and isinstance(hop, int)):
        raise NoForm("frames of symbolic length")
    places = torch.arange((x.shape[1] - size) // hop + 1).unsqueeze(1) * hop + torch.arange(size)
    frames = complex_of(x[:, places])
    frames = frames if window is None else frames * window
    return _forward(frames, None, 2, onesided=bool(node.get("onesided", 1)))


@op("MelWeightMatrix", known=ALL)
def mel_weights(node: Node, bins: Value, length: Value, rate: Value, lower: Value, upper: Value) -> Constant:
    """Triangles [spectrogram bins, mel bins] that meet at their feet, equally far apart on the mel scale.

    As the operator's reference has it: ``bins + 2`` points from the lower edge on in steps of the range by as many.
    """
    count, size, per_second = (int(number(v, "an argument")) for v in (bins, length, rate))
    low, high = (2595 * numpy.log10(1 + float(number(edge, "an edge")) / 700) for edge in (lower, upper))
    mels = low + numpy.arange(count + 2) * (high - low) / (count + 2)
    points = ((size + 1) * (700 * (10 ** (mels / 2595) - 1)) // per_second).astype(int)
    made, places = numpy.zeros((size // 2 + 1, count)), numpy.arange(size // 2 + 1)
    for place, (left, middle, right) in enumerate(zip(points, points[1:], points[2:], strict=False)):
        rising, falling = (places >= left) & (places <= middle), (places >= middle) & (places < right)
        if middle > left:
            made[rising, place] = (places[rising] - left) / (middle - left)
        else:
            made[middle, place] = 1
        if right > middle:
            made[falling, place] = (right - places[falling]) / (right - middle)
    with untraced():
        return Constant(torch.from_numpy(made).to(dtype_of(node.get("output_datatype", 1))))
