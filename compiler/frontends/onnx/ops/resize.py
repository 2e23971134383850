"""Resize: along each axis a gather, or a product with a small matrix of weights.

Lengths and scales that are known give the same numbers as the operator's text. Where a nearest neighbour depends on how
a coordinate is rounded, there is no form. Symbolic lengths have one where it is PyTorch's own interpolation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.known import Int, Value, ints, numbers, untraced
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.table import op

Array = numpy.ndarray[Any, Any]
_KEPT = "stretch"


@dataclass(frozen=True)
class Line:
    """One axis: its lengths, the scale between them, and where the region of interest starts and ends (0 to 1)."""

    axis: int
    length: Int
    wanted: Int
    scale: float | None
    """None where it follows from symbolic lengths."""
    start: float = 0.0
    end: float = 1.0


@op("Resize", since=11, known=(1, 2, 3))
def resize(node: Node, x: Tensor, roi: Value = None, scales: Value = None, sizes: Value = None) -> Tensor:
    """x with other lengths, elements interpolated."""
    lines = _lines(node, x, roi, scales, sizes)
    return _resized(node, x, [line for line in lines if not _is_same(node, line)])


@op("Upsample", since=9, until=9, known=(1,))
def upsample(node: Node, x: Tensor, scales: Value) -> Tensor:
    """x with longer axes: coordinates are divided by the scale and cut."""
    lines = _scaled(x, list(range(x.dim())), numbers(scales, "the scales"))
    chosen = [line for line in lines if line.scale != 1]
    for line in chosen:
        coordinates = _coordinates("asymmetric", line)
        if node.get("mode", "nearest") == "nearest":
            x = _gathered(x, line, numpy.floor(coordinates).astype(numpy.int64))
        else:
            x = _weighted(x, line, _linear(coordinates, line, 1.0), exclude=False)
    return x


def _lines(node: Node, x: Tensor, roi: Value, scales: Value, sizes: Value) -> list[Line]:
    axes = [axis % x.dim() for axis in node.get("axes") or range(x.dim())]
    given = [] if scales is None else numbers(scales, "the scales")
    if given:
        lines = _scaled(x, axes, given)
    else:
        lines = _sized(node, x, axes, ints(sizes, "the sizes"))
    if node.get("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize":
        return lines
    ends = numbers(roi, "the region")
    starts, ends = ends[: len(axes)], ends[len(axes) :]
    return [
        Line(line.axis, line.length, line.wanted, line.scale, start, end)
        for line, start, end in zip(lines, starts, ends, strict=True)
    ]


def _scaled(x: Tensor, axes: Sequence[int], scales: Sequence[float]) -> list[Line]:
    lines = []
    for axis, scale in zip(axes, scales, strict=True):
        length = x.shape[axis]
        if isinstance(length, int):
            lines.append(Line(axis, length, math.floor(length * scale), scale))
        elif float(scale).is_integer():
            lines.append(Line(axis, length, length * int(scale), scale))
        else:
            raise NoForm("a symbolic length with a scale that is no whole number")
    return lines


def _sized(node: Node, x: Tensor, axes: Sequence[int], sizes: Sequence[Int]) -> list[Line]:
    policy = node.get("keep_aspect_ratio_policy", _KEPT)
    pairs = [(x.shape[axis], size) for axis, size in zip(axes, sizes, strict=True)]
    if not all(isinstance(n, int) for pair in pairs for n in pair):
        if policy != _KEPT:
            raise NoForm("a kept aspect ratio of symbolic lengths")
        same = [Line(axis, length, size, None) for axis, (length, size) in zip(axes, pairs, strict=True)]
        return [Line(line.axis, line.length, line.wanted, _scale_of(line)) for line in same]
    scales = [size / length for length, size in pairs]
    if policy != _KEPT:
        scale = min(scales) if policy == "not_larger" else max(scales)
        wanted = [math.floor(scale * length + 0.5) for length, _ in pairs]
        return [Line(axis, length, size, scale) for axis, (length, _), size in zip(axes, pairs, wanted, strict=True)]
    return [Line(axis, length, size, scale) for axis, (length, size), scale in zip(axes, pairs, scales, strict=True)]


def _scale_of(line: Line) -> float | None:
    if isinstance(line.length, int) and isinstance(line.wanted, int):
        return line.wanted / line.length
    return 1.0 if str(line.length) == str(line.wanted) else None


def _is_same(node: Node, line: Line) -> bool:
    """Whether an axis stays what it is."""
    cropped = node.get("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    return line.scale == 1 and not (cropped and (line.start, line.end) != (0, 1))


def _resized(node: Node, x: Tensor, lines: list[Line]) -> Tensor:
    how, mode = node.get("coordinate_transformation_mode", "half_pixel"), node.get("mode", "nearest")
    if not all(isinstance(line.length, int) and isinstance(line.wanted, int) for line in lines):
        return _symbolic(node, x, lines, how, mode)
    excluded, outside = bool(node.get("exclude_outside", 0)), None
    if excluded and mode == "linear":
        raise NoForm("a linear interpolation that leaves out what is outside")
    for line in lines:
        coordinates = _coordinates(how, line)
        if how == "tf_crop_and_resize":
            outside = _joined(outside, x, line, coordinates)
        if mode == "nearest":
            x = _gathered(x, line, _nearest(node, coordinates, how, line))
            continue
        smaller = min(line.scale or 1.0, 1.0) if node.get("antialias", 0) else 1.0
        if mode == "linear":
            weights = _linear(coordinates, line, smaller)
        elif mode == "cubic":
            weights = _cubic(coordinates, line, smaller, node.get("cubic_coeff_a", -0.75))
        else:
            raise NoForm(f"mode {mode}")
        x = _weighted(x, line, weights, exclude=excluded)
    return x if outside is None else torch.where(outside, node.get("extrapolation_value", 0.0), x).to(x.dtype)


def _symbolic(node: Node, x: Tensor, lines: list[Line], how: str, mode: str) -> Tensor:
    """The cases PyTorch has the same: whole scales of nearest neighbours, linear interpolation by pixel centres."""
    whole = all(line.scale is not None and float(line.scale).is_integer() and line.scale >= 1 for line in lines)
    pixels = how == "half_pixel" or (how == "pytorch_half_pixel" and whole)
    nearest = node.get("nearest_mode", "round_prefer_floor")
    if mode == "nearest" and whole:
        if (how == "asymmetric" and nearest == "floor") or (pixels and nearest.startswith("round")):
            for line in lines:
                x = x.repeat_interleave(int(line.scale or 1), line.axis)
            return x
    plane = x.dim() in (3, 4, 5) and all(line.axis >= 2 for line in lines)
    if mode == "linear" and plane and not node.get("antialias", 0) and (pixels or how == "align_corners"):
        wanted: list[Int] = list(x.shape[2:])
        for line in lines:
            wanted[line.axis - 2] = line.wanted
        kind = {3: "linear", 4: "bilinear", 5: "trilinear"}[x.dim()]
        return F.interpolate(x, wanted, mode=kind, align_corners=how == "align_corners")
    raise NoForm(f"mode {mode}, {how} of symbolic lengths")


def _coordinates(how: str, line: Line, kind: Any = numpy.float64) -> Array:
    """Where in the input each place of the output is read."""
    length, wanted, scale = int(line.length), int(line.wanted), kind(line.scale)
    places = numpy.arange(wanted).astype(kind)
    if how == "asymmetric":
        return places / scale
    if how in ("align_corners", "tf_crop_and_resize", "pytorch_half_pixel") and wanted != length * float(
        line.scale or 1
    ):
        raise NoForm(f"{how} with an output that is not the input's length times the scale")
    if how in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        if how == "pytorch_half_pixel" and wanted == 1:
            return places * 0
        made = (places + kind(0.5)) / scale - kind(0.5)
        if how == "half_pixel_symmetric":
            made = made + kind(length) / 2 * (kind(1) - kind(wanted) / (scale * kind(length)))
        return made
    if how == "align_corners":
        return places * 0 if wanted == 1 else places * kind(length - 1) / kind(wanted - 1)
    if how == "tf_crop_and_resize":
        start, span = kind(line.start), kind(line.end) - kind(line.start)
        if wanted == 1:
            raise NoForm("a crop to one element")
        return start * kind(length - 1) + places * span * kind(length - 1) / kind(wanted - 1)
    raise NoForm(f"the coordinate transformation {how}")


_ROUNDED = {
    "round_prefer_floor": lambda c: numpy.ceil(c - 0.5),
    "round_prefer_ceil": lambda c: numpy.floor(c + 0.5),
    "floor": numpy.floor,
    "ceil": numpy.ceil,
}


def _nearest(node: Node, coordinates: Array, how: str, line: Line) -> Array:
    """The neighbour of each coordinate. Raises NoForm where float32 has another one."""
    rounded = _ROUNDED[node.get("nearest_mode", "round_prefer_floor")]
    found = rounded(coordinates)
    short = rounded(_coordinates(how, line, numpy.float32))
    if not numpy.array_equal(found, short):
        raise NoForm("a nearest neighbour that depends on how coordinates are rounded")
    return found.astype(numpy.int64)


def _gathered(x: Tensor, line: Line, places: Array) -> Tensor:
    return x.index_select(line.axis, _tensor(numpy.clip(places, 0, int(line.length) - 1)))


def _tensor(array: Array) -> Tensor:
    with untraced():
        return torch.from_numpy(array)


def _joined(outside: Tensor | None, x: Tensor, line: Line, coordinates: Array) -> Tensor:
    """What is read from beyond the input, along one more axis."""
    shape = [1] * x.dim()
    shape[line.axis] = len(coordinates)
    here = _tensor((coordinates < 0) | (coordinates > int(line.length) - 1)).reshape(shape)
    return here if outside is None else outside | here


Weights = tuple[Array, Array]
"""Places [wanted, neighbours] that may lie outside, and weights for them."""


def _around(coordinates: Array, reach: float, kernel: Any) -> Weights:
    """The weights of all neighbours nearer than ``reach``."""
    first = numpy.floor(coordinates - reach).astype(numpy.int64) + 1
    count = math.ceil(2 * reach) + 1
    places = first[:, None] + numpy.arange(count)[None, :]
    return places, kernel(numpy.abs(places - coordinates[:, None]))


def _linear(coordinates: Array, line: Line, smaller: float) -> Weights:
    return _around(coordinates, 1 / smaller, lambda d: numpy.clip(1 - d * smaller, 0, 1))


def _cubic(coordinates: Array, line: Line, smaller: float, a: float) -> Weights:
    if len(coordinates) == 1:
        raise NoForm("a cubic interpolation of one element: texts differ in where it is read")

    def kernel(distance: Array) -> Array:
        d = distance * smaller
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return numpy.where(d <= 1, near, numpy.where(d < 2, far, 0.0))

    return _around(coordinates, 2 / smaller, kernel)


def _weighted(x: Tensor, line: Line, weights: Weights, *, exclude: bool) -> Tensor:
    """Sums of neighbours; those outside are the edge's element, or left out where ``exclude``."""
    if not x.is_floating_point():
        raise NoForm("interpolation of integers: how it rounds isn't said")
    places, factors = weights
    length = int(line.length)
    if exclude:
        inside = (places >= 0) & (places < length)
        factors = numpy.where(inside, factors, 0.0)
    factors = factors / factors.sum(1, keepdims=True)
    matrix = numpy.zeros((places.shape[0], length))
    numpy.add.at(matrix, (numpy.arange(len(places))[:, None], numpy.clip(places, 0, length - 1)), factors)
    product = _tensor(matrix).to(torch.float32 if x.dtype.itemsize < 8 else torch.float64)
    made = torch.matmul(x.movedim(line.axis, -1).to(product.dtype), product.transpose(0, 1)).movedim(-1, line.axis)
    return made.to(x.dtype)
