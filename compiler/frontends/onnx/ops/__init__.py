"""ATen forms of ONNX operators, by family."""

from __future__ import annotations

from attnc.compiler.frontends.onnx.ops import (
    attention,
    bodies,
    control,
    convolution,
    creation,
    indexing,
    layout,
    matmul,
    normalisation,
    pointwise,
    pooling,
    quantisation,
    recurrent,
    reduction,
    resize,
    sampling,
    signal,
    softmax,
    unsigned,
)
from attnc.compiler.frontends.onnx.table import Entry, entry_of, operators

__all__ = ["Entry", "bodies", "control", "entry_of", "operators", "unsigned"]
FAMILIES = (
    attention,
    convolution,
    creation,
    indexing,
    layout,
    matmul,
    normalisation,
    pointwise,
    pooling,
    quantisation,
    recurrent,
    reduction,
    resize,
    sampling,
    signal,
    softmax,
)
