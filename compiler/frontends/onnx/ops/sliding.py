"""Windows that slide over a tensor: strides, dilations and pads, as convolutions and poolings say them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.errors import NoForm, wrong
from attnc.compiler.frontends.onnx.known import Int
from attnc.compiler.frontends.onnx.node import Node


@dataclass(frozen=True)
class Sliding:
    """A window over dimensions 2 and on of a tensor."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[Int]
    after: list[Int]

    @property
    def extents(self) -> list[int]:
        """From a window's first element to its last, one more."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    @property
    def even(self) -> list[int] | None:
        """Pads that are the same on both sides and known; None where they aren't."""
        pairs = zip(self.before, self.after, strict=True)
        if all(isinstance(b, int) and isinstance(a, int) and a == b >= 0 for b, a in pairs):
            return [int(b) for b in self.before]
        return None


def sliding(node: Node, x: Tensor, kernel: Sequence[int]) -> Sliding:
    """The window of a node on ``x``. Raises OnnxError for attributes of another rank, NoForm for ranks torch lacks."""
    rank = x.dim() - 2
    if not 1 <= rank <= 3:
        raise NoForm(f"a window over {rank} dimensions")
    strides, dilations = node.get("strides") or [1] * rank, node.get("dilations") or [1] * rank
    pads = node.get("pads") or [0] * (2 * rank)
    if not len(kernel) == len(strides) == len(dilations) == len(pads) // 2 == rank:
        raise wrong(node, f"its attributes are not those of {rank} dimensions")
    window = Sliding(list(kernel), strides, dilations, list(pads[:rank]), list(pads[rank:]))
    how = node.get("auto_pad", "NOTSET")
    if how == "NOTSET":
        return window
    if how == "VALID":
        return Sliding(window.kernel, strides, dilations, [0] * rank, [0] * rank)
    totals = [_same(n, s, e) for n, s, e in zip(x.shape[2:], strides, window.extents, strict=True)]
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    before, after = (less, more) if how == "SAME_UPPER" else (more, less)
    return Sliding(window.kernel, strides, dilations, before, after)


def _same(length: Int, stride: int, extent: int) -> Int:
    """Pads on both sides together, for as many windows as there are strides in the length."""
    if stride == 1:
        return extent - 1
    needed = ((length + stride - 1) // stride - 1) * stride + extent - length
    return max(needed, 0) if isinstance(needed, int) else torch.sym_max(needed, 0)


def surrounded(x: Tensor, before: Sequence[Int], after: Sequence[Int], fill: float = 0.0) -> Tensor:
    """x with ``fill`` put before and behind in dimensions 2 and on; negative pads cut."""
    flat: list[Any] = [pad for pair in reversed(list(zip(before, after, strict=True))) for pad in pair]
    if all(isinstance(pad, int) and pad == 0 for pad in flat):
        return x
    return F.pad(x, flat, value=fill)
