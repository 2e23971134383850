"""Interpolation along one axis of known length: where an output is read, and the weights of its neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.known import Int, untraced
from attnc.compiler.frontends.onnx.node import Node

Array = numpy.ndarray[Any, Any]
_WHOLE = 1e-4
"""How far a length times a scale of float32 may be from a whole number."""


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


def coordinates_of(how: str, line: Line, kind: Any = numpy.float64) -> Array:
    """Where in the input each place of the output is read."""
    length, wanted, scale = int(line.length), int(line.wanted), kind(line.scale)
    places: Array = numpy.arange(wanted).astype(kind)
    made: Array
    if how == "asymmetric":
        made = places / scale
        return made
    ends = how in ("align_corners", "tf_crop_and_resize") or (how == "pytorch_half_pixel" and wanted == 1)
    if ends and abs(wanted - length * float(line.scale or 1)) > _WHOLE:
        raise NoForm(f"{how} with an output that is not the input's length times the scale")
    if how in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        if how == "pytorch_half_pixel" and wanted == 1:
            made = places * 0
            return made
        made = (places + kind(0.5)) / scale - kind(0.5)
        if how == "half_pixel_symmetric":
            made = made + kind(length) / 2 * (kind(1) - kind(wanted) / (scale * kind(length)))
        return made
    if how == "align_corners":
        made = places * 0 if wanted == 1 else places * kind(length - 1) / kind(wanted - 1)
        return made
    if how == "tf_crop_and_resize":
        start, span = kind(line.start), kind(line.end) - kind(line.start)
        if wanted == 1:
            raise NoForm("a crop to one element")
        made = start * kind(length - 1) + places * span * kind(length - 1) / kind(wanted - 1)
        return made
    raise NoForm(f"the coordinate transformation {how}")


_ROUNDED: dict[str, Any] = {
    "round_prefer_floor": lambda c: numpy.ceil(c - 0.5),
    "round_prefer_ceil": lambda c: numpy.floor(c + 0.5),
    "floor": numpy.floor,
    "ceil": numpy.ceil,
}


def nearest(node: Node, coordinates: Array, how: str, line: Line) -> Array:
    """The neighbour of each coordinate. Raises NoForm where float32 has another one."""
    rounded = _ROUNDED[node.get("nearest_mode", "round_prefer_floor")]
    found: Array = rounded(coordinates)
    short = rounded(coordinates_of(how, line, numpy.float32))
    if not numpy.array_equal(found, short):
        raise NoForm("a nearest neighbour that depends on how coordinates are rounded")
    whole: Array = found.astype(numpy.int64)
    return whole


def gathered(x: Tensor, line: Line, places: Array) -> Tensor:
    """The elements at these places; of those outside the edge's."""
    return x.index_select(line.axis, _tensor(numpy.clip(places, 0, int(line.length) - 1)))


def _tensor(array: Array) -> Tensor:
    with untraced():
        return torch.from_numpy(array)


def joined(outside: Tensor | None, x: Tensor, line: Line, coordinates: Array) -> Tensor:
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


def linear(coordinates: Array, smaller: float) -> Weights:
    """Triangles; wider ones where ``smaller`` is below 1."""
    return _around(coordinates, 1 / smaller, lambda d: numpy.clip(1 - d * smaller, 0, 1))


def cubic(coordinates: Array, smaller: float, a: float) -> Weights:
    """Cubic convolution with the parameter ``a``. Raises NoForm for one element, whose place isn't certain."""
    if len(coordinates) == 1:
        raise NoForm("a cubic interpolation of one element: texts differ in where it is read")

    def kernel(distance: Array) -> Array:
        d = distance * smaller
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return numpy.where(d <= 1, near, numpy.where(d < 2, far, 0.0))

    return _around(coordinates, 2 / smaller, kernel)


def weighted(x: Tensor, line: Line, weights: Weights, *, exclude: bool) -> Tensor:
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
