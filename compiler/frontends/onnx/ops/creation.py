"""Tensors made of nothing but numbers."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from attnc.compiler.frontends.onnx.dtypes import dtype_of
from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.known import MOST_ELEMENTS, Constant, Known, Sizes, Value, ints, number, untraced
from attnc.compiler.frontends.onnx.model import read_tensor
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.table import ALL, op


@op("Constant", stored=True)
def constant(node: Node) -> Constant:
    """The number, list or tensor of an attribute."""
    for name, value in node.attributes.items():
        if name == "value":
            return Constant(read_tensor(value, None))
        if name in ("value_int", "value_ints"):
            with untraced():
                return Constant(torch.tensor(value, dtype=torch.int64))
        if name in ("value_float", "value_floats"):
            with untraced():
                return Constant(torch.tensor(value, dtype=torch.float32))
    raise NoForm(f"a constant of kind {', '.join(node.attributes) or 'unknown'}")


@op("ConstantOfShape", known=ALL)
def constant_of_shape(node: Node, shape: Value) -> Tensor | Known:
    """A tensor filled with one number; of known sizes, where it is a short list of integers."""
    lengths = ints(shape, "the shape")
    value = node.get("value")
    with untraced():
        filler = torch.zeros(1) if value is None else read_tensor(value, None)
        fill = filler.item()
    if all(isinstance(length, int) for length in lengths) and numpy.prod(lengths, dtype=object) <= MOST_ELEMENTS:
        with untraced():
            return Constant(torch.full([int(length) for length in lengths], fill, dtype=filler.dtype))
    return torch.full(lengths, fill, dtype=filler.dtype)


@op("Range", known=ALL)
def arange(node: Node, start: Value, limit: Value, delta: Value) -> Tensor:
    """Numbers from ``start`` to before ``limit``."""
    bounds = []
    for value, name in ((start, "start"), (limit, "limit"), (delta, "delta")):
        if isinstance(value, Sizes):
            (bound,) = ints(value, name)
        else:
            bound = number(value, name)
        bounds.append(bound)
    return torch.arange(*bounds, dtype=start.dtype)  # type: ignore[union-attr]


@op("EyeLike")
def eye_like(node: Node, x: Tensor) -> Tensor:
    """Ones on a diagonal of a matrix."""
    dtype = dtype_of(node.get("dtype")) if node.get("dtype") else x.dtype
    rows = torch.arange(x.shape[0]).unsqueeze(1)
    return torch.eq(torch.arange(x.shape[1]) - rows, node.get("k", 0)).to(dtype)
