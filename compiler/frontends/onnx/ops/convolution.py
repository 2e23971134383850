"""Convolutions, forward and transposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.known import Int, Value, ints
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.ops.pointwise import alike
from attnc.compiler.frontends.onnx.ops.sliding import Sliding, sliding, surrounded
from attnc.compiler.frontends.onnx.table import op

_FORWARD: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: dict[int, Callable[..., Tensor]] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@op("Conv")
def convolution(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Sums of products with a kernel that slides over 1 to 3 dimensions."""
    alike(node, x, weight, *(() if bias is None else (bias,)))
    return convolved(node, x, weight, bias)


def convolved(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The convolution of a node's attributes, of any floating-point type."""
    window = sliding(node, x, [int(length) for length in weight.shape[2:]])
    even = window.even
    if even is None:
        x, even = surrounded(x, window.before, window.after), [0] * len(window.kernel)
    convolve = _FORWARD[len(window.kernel)]
    return convolve(x, weight, bias, window.strides, even, window.dilations, node.get("group", 1))


@op("ConvTranspose")
def transposed_convolution(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The convolution that has this one's gradient: every element spreads the kernel, and pads are cut off."""
    alike(node, x, weight, *(() if bias is None else (bias,)))
    window = sliding(node, x, [int(length) for length in weight.shape[2:]])
    more = node.get("output_padding") or [0] * len(window.kernel)
    before, after = _cuts(node, x, window, more)
    convolve, group = _TRANSPOSED[len(window.kernel)], node.get("group", 1)
    fits = all(m < max(s, d) for m, s, d in zip(more, window.strides, window.dilations, strict=True))
    even = Sliding(window.kernel, window.strides, window.dilations, before, after).even
    if even is not None and fits:
        return convolve(x, weight, bias, window.strides, even, more, group, window.dilations)
    made = convolve(x, weight, None, window.strides, 0, 0, group, window.dilations)
    made = surrounded(made, [-b for b in before], [m - a for m, a in zip(more, after, strict=True)])
    return made if bias is None else made + bias.reshape((-1,) + (1,) * len(window.kernel))


def _cuts(node: Node, x: Tensor, window: Sliding, more: Sequence[int]) -> tuple[list[Int], list[Int]]:
    """What is cut off before and behind: as said, or so that the output has a given length (or put on)."""
    wanted, how = node.get("output_shape"), node.get("auto_pad", "NOTSET")
    if not wanted and how in ("NOTSET", "VALID"):
        return window.before, window.after
    totals: list[Int] = []
    sizes = zip(x.shape[2:], window.strides, window.extents, more, strict=True)
    for place, (length, stride, extent, extra) in enumerate(sizes):
        total = extent + extra - stride
        totals.append(total + stride * length - wanted[len(wanted) - len(more) + place] if wanted else total)
    if not all(isinstance(total, int) for total in totals):
        raise NoForm("an output shape for a symbolic input")
    less, rest = [max(t, 0) // 2 for t in totals], [max(t, 0) - max(t, 0) // 2 for t in totals]
    before, after = (less, rest) if how == "SAME_UPPER" else (rest, less)
    return before, [min(t, 0) + a for t, a in zip(totals, after, strict=True)]


@op("Col2Im", known=(1, 2))
def from_columns(node: Node, x: Tensor, image: Value, block: Value) -> Tensor:
    """Planes in which the blocks of x [batch, channels·block, count] are summed up. Raises NoForm for volumes."""
    lengths: Any = ints(image, "the image's shape")
    kernel: Any = ints(block, "the block's shape")
    pads = node.get("pads") or [0] * (2 * len(lengths))
    if len(lengths) != 2 or pads[:2] != pads[2:]:
        raise NoForm(f"{len(lengths)} dimensions with pads {pads}")
    options: dict[str, Any] = {"dilation": node.get("dilations") or [1, 1], "stride": node.get("strides") or [1, 1]}
    return F.fold(x, lengths, kernel, padding=tuple(pads[:2]), **options)
