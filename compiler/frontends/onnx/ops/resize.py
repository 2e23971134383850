"""Resize: along each axis a gather, or a product with a small matrix of weights.

Lengths and scales that are known give the same numbers as the operator's text. Where a nearest neighbour depends on how
a coordinate is rounded, there is no form. Symbolic lengths have one where it is PyTorch's own interpolation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.known import Int, Value, ints, numbers
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.ops.interpolation import (
    Line,
    coordinates_of,
    cubic,
    gathered,
    joined,
    linear,
    nearest,
    weighted,
)
from attnc.compiler.frontends.onnx.table import op

_KEPT = "stretch"


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
        coordinates = coordinates_of("asymmetric", line)
        if node.get("mode", "nearest") == "nearest":
            x = gathered(x, line, numpy.floor(coordinates).astype(numpy.int64))
        else:
            x = weighted(x, line, linear(coordinates, 1.0), exclude=False)
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
        coordinates = coordinates_of(how, line)
        if how == "tf_crop_and_resize":
            outside = joined(outside, x, line, coordinates)
        if mode == "nearest":
            x = gathered(x, line, nearest(node, coordinates, how, line))
            continue
        smaller = min(line.scale or 1.0, 1.0) if node.get("antialias", 0) else 1.0
        if mode == "linear":
            weights = linear(coordinates, smaller)
        elif mode == "cubic":
            weights = cubic(coordinates, smaller, node.get("cubic_coeff_a", -0.75))
        else:
            raise NoForm(f"mode {mode}")
        x = weighted(x, line, weights, exclude=excluded)
    return x if outside is None else torch.where(outside, node.get("extrapolation_value", 0.0), x).to(x.dtype)


def _symbolic(node: Node, x: Tensor, lines: list[Line], how: str, mode: str) -> Tensor:
    """The cases PyTorch has the same: whole scales of nearest neighbours, linear interpolation by pixel centres."""
    whole = all(line.scale is not None and float(line.scale).is_integer() and line.scale >= 1 for line in lines)
    pixels = how == "half_pixel" or (how == "pytorch_half_pixel" and whole)
    rounding = node.get("nearest_mode", "round_prefer_floor")
    if mode == "nearest" and whole:
        if (how == "asymmetric" and rounding == "floor") or (pixels and rounding.startswith("round")):
            for line in lines:
                x = x.repeat_interleave(int(line.scale or 1), line.axis)
            return x
    plane = x.dim() in (3, 4, 5) and all(line.axis >= 2 for line in lines)
    if mode == "linear" and plane and not node.get("antialias", 0) and (pixels or how == "align_corners"):
        wanted: list[Any] = list(x.shape[2:])
        for line in lines:
            wanted[line.axis - 2] = line.wanted
        kind = {3: "linear", 4: "bilinear", 5: "trilinear"}[x.dim()]
        return F.interpolate(x, wanted, mode=kind, align_corners=how == "align_corners")
    raise NoForm(f"mode {mode}, {how} of symbolic lengths")
