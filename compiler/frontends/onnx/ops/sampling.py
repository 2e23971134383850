"""Elements read between elements."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.table import op

_MODES = {"linear": "bilinear", "bilinear": "bilinear", "cubic": "bicubic", "bicubic": "bicubic", "nearest": "nearest"}


@op("GridSample")
def grid_sample(node: Node, x: Tensor, grid: Tensor) -> Tensor:
    """x at the places of a grid from −1 to 1. Raises NoForm for lines, cubic volumes and mixed types."""
    mode = _MODES.get(node.get("mode", "linear" if node.version >= 20 else "bilinear"))
    if mode is None or x.dim() not in (4, 5) or (mode == "bicubic" and x.dim() == 5):
        raise NoForm(f"mode {node.get('mode')} over {x.dim() - 2} dimensions")
    if x.dtype != grid.dtype or not x.is_floating_point():
        raise NoForm("a grid of another type than what is sampled")
    around = node.get("padding_mode", "zeros")
    return F.grid_sample(x, grid, mode, around, align_corners=bool(node.get("align_corners", 0)))
