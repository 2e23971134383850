"""Poolings: the greatest, the mean or a norm of the elements under a window."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.known import Int, Value, ints
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.ops.sliding import Sliding, sliding, surrounded
from attnc.compiler.frontends.onnx.table import op

_GREATEST: dict[int, Callable[..., Any]] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_SUMS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_MEANS: dict[int, Callable[..., Tensor]] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def _reaching(node: Node, x: Tensor, window: Sliding) -> list[Int]:
    """What is put behind the pads so that the last window fits, where ``ceil_mode`` asks for one more."""
    more: list[Int] = []
    if not node.get("ceil_mode", 0):
        return [0] * len(window.kernel)
    for place, (stride, extent) in enumerate(zip(window.strides, window.extents, strict=True)):
        length, before, after = x.shape[2 + place], window.before[place], window.after[place]
        if not all(isinstance(n, int) for n in (length, before, after)):
            raise NoForm("ceil_mode along a symbolic size")
        span = int(length + before + after)
        count = -(-(span - extent) // stride) + 1
        if (count - 1) * stride >= int(length + before):
            count -= 1
        more.append(max((count - 1) * stride + extent - span, 0))
    return more


@op("MaxPool")
def max_pool(node: Node, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
    """The greatest elements; output 1 is where they are in the flat input."""
    window = sliding(node, x, node.get("kernel_shape"))
    more = _reaching(node, x, window)
    given = x if x.is_floating_point() else x.to(torch.float32)
    ends = [a + m for a, m in zip(window.after, more, strict=True)]
    padded = surrounded(given, window.before, ends, -math.inf)
    pool, indices = _GREATEST[len(window.kernel)], node.makes(1)
    found = pool(padded, window.kernel, window.strides, 0, window.dilations, return_indices=indices)
    if not indices:
        made: Tensor = found.to(x.dtype)
        return made
    return found[0].to(x.dtype), _flat(node, found[1], x, padded, window)


def _flat(node: Node, places: Tensor, x: Tensor, padded: Tensor, window: Sliding) -> Tensor:
    """Places in the planes of the padded tensor as places in the whole input."""
    lengths = x.shape[2:]
    at: list[Tensor] = []
    for place in reversed(range(len(lengths))):
        length = padded.shape[2 + place]
        at.insert(0, places % length - window.before[place])
        places = places // length
    order = list(range(len(lengths)))
    flat, size = torch.zeros((), dtype=torch.int64), 1
    for place in order if node.get("storage_order", 0) else reversed(order):
        flat, size = flat + at[place] * size, size * lengths[place]
    planes = torch.arange(x.shape[0] * x.shape[1]).reshape((x.shape[0], x.shape[1]) + (1,) * len(lengths))
    return flat + planes * size


def _sum(x: Tensor, window: Sliding) -> Tensor:
    """Sums under the windows of a tensor [batch, channels, …] that is padded already."""
    planes = x.reshape((-1, 1, *x.shape[2:]))
    ones = torch.ones((1, 1, *window.kernel), dtype=x.dtype)
    made = _SUMS[len(window.kernel)](planes, ones, None, window.strides, 0, window.dilations)
    return made.reshape((*x.shape[:2], *made.shape[2:]))


@op("AveragePool")
def average_pool(node: Node, x: Tensor) -> Tensor:
    """Means; of pads too where ``count_include_pad`` is set, else of what is there."""
    window, whole = sliding(node, x, node.get("kernel_shape")), bool(node.get("count_include_pad", 0))
    more, even = _reaching(node, x, window), window.even
    if whole and any(more) and node.version < 19:
        raise NoForm("a last window beyond the pads: before operator set 19 what it counts isn't said")
    fits = even is not None and all(2 * pad <= k for pad, k in zip(even, window.kernel, strict=True))
    if fits and not any(more) and set(window.dilations) == {1}:
        return _MEANS[len(window.kernel)](x, window.kernel, window.strides, even, count_include_pad=whole)
    wide = x.to(torch.float32) if x.dtype.itemsize < 4 else x
    ends = [a + m for a, m in zip(window.after, more, strict=True)]
    there = torch.ones((1, 1, *x.shape[2:]), dtype=wide.dtype)
    if whole:
        there = surrounded(surrounded(there, window.before, window.after, 1.0), [0] * len(more), more)
    else:
        there = surrounded(there, window.before, ends)
    return (_sum(surrounded(wide, window.before, ends), window) / _sum(there, window)).to(x.dtype)


@op("LpPool")
def lp_pool(node: Node, x: Tensor) -> Tensor:
    """p-norms of the elements under windows."""
    window, power = sliding(node, x, node.get("kernel_shape")), node.get("p", 2)
    ends = [a + m for a, m in zip(window.after, _reaching(node, x, window), strict=True)]
    wide = x.to(torch.float32) if x.dtype.itemsize < 4 else x
    powers = torch.pow(torch.abs(surrounded(wide, window.before, ends)), power)
    return torch.pow(_sum(powers, window), 1.0 / power).to(x.dtype)


def _plane(x: Tensor) -> list[int]:
    return list(range(2, x.dim()))


@op("GlobalAveragePool")
def global_average(node: Node, x: Tensor) -> Tensor:
    """The mean of each channel."""
    return torch.mean(x, _plane(x), keepdim=True)


@op("GlobalMaxPool")
def global_max(node: Node, x: Tensor) -> Tensor:
    """The greatest element of each channel."""
    return torch.amax(x, _plane(x), keepdim=True)


@op("GlobalLpPool")
def global_lp(node: Node, x: Tensor) -> Tensor:
    """The p-norm of each channel."""
    power = node.get("p", 2)
    return torch.pow(torch.sum(torch.pow(torch.abs(x), power), _plane(x), keepdim=True), 1.0 / power)


@op("MaxUnpool", known=(2,))
def max_unpool(node: Node, x: Tensor, places: Tensor, shape: Value = None) -> Tensor:
    """Zeros, with the elements where a pooling found them. Raises NoForm for another shape than the pooling's input."""
    window = sliding(node, x, node.get("kernel_shape"))
    lengths: list[Int] = list(x.shape[:2])
    for place, kernel in enumerate(window.kernel):
        cut = window.before[place] + window.after[place]
        lengths.append((x.shape[2 + place] - 1) * window.strides[place] + kernel - cut)
    if shape is not None and [str(n) for n in ints(shape, "the output's shape")] != [str(n) for n in lengths]:
        raise NoForm("an output shape of its own, for which indices have more than one meaning")
    total: Int = 1
    for length in lengths:
        total = total * length
    flat = torch.zeros(total, dtype=x.dtype)
    return flat.scatter(0, places.reshape(-1), x.reshape(-1)).reshape(lengths)
