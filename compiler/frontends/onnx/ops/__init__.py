"""ATen forms of ONNX operators, by family. Importing this package enters them all in the table."""

from __future__ import annotations

from importlib import import_module

from attnc.compiler.frontends.onnx.ops import bodies, control, unsigned
from attnc.compiler.frontends.onnx.table import Entry, entry_of, operators

__all__ = ["Entry", "bodies", "control", "entry_of", "operators", "unsigned"]

FAMILIES = (
    "attention",
    "contrib",
    "contrib_attention",
    "contrib_gqa",
    "contrib_products",
    "convolution",
    "creation",
    "indexing",
    "layout",
    "matmul",
    "normalisation",
    "pointwise",
    "pooling",
    "quantisation",
    "recurrent",
    "reduction",
    "resize",
    "sampling",
    "signal",
    "softmax",
)
for _family in FAMILIES:
    import_module(f"{__name__}.{_family}")
