"""ATen forms of ONNX operators, by family."""

from __future__ import annotations

from attnc.compiler.frontends.onnx.ops import (
    attention,
    bodies,
    creation,
    indexing,
    layout,
    matmul,
    normalisation,
    pointwise,
    reduction,
    softmax,
)
from attnc.compiler.frontends.onnx.table import Entry, entry_of, operators

__all__ = ["Entry", "bodies", "entry_of", "operators"]
FAMILIES = (attention, creation, indexing, layout, matmul, normalisation, pointwise, reduction, softmax)
