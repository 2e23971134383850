"""ATen forms of ONNX operators, by family."""

from __future__ import annotations

from attnc.compiler.frontends.onnx.ops import (
    attention,
    bodies,
    contrib,
    contrib_attention,
    contrib_gqa,
    contrib_products,
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
    contrib,
    contrib_attention,
    contrib_gqa,
    contrib_products,
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
