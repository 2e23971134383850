"""Products of matrices."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.known import Value, materialise
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.ops.pointwise import alike
from attnc.compiler.frontends.onnx.table import op


@op("MatMul")
def matmul(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """numpy's product of (stacks of) matrices."""
    alike(node, a, b)
    return torch.matmul(a, b)


@op("Gemm", known=(2,))
def gemm(node: Node, a: Tensor, b: Tensor, c: Value = None) -> Tensor:
    """alpha·A·B + beta·C of matrices, either transposed."""
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    left = a.transpose(0, 1) if node.get("transA", 0) else a
    weight = b if node.get("transB", 0) else b.transpose(0, 1)
    bias = None if c is None else materialise(c)
    if alpha == 1 and beta == 1 and left.is_floating_point() and (bias is None or bias.dim() == 1):
        return F.linear(left, weight, bias)
    made = torch.matmul(left, weight.transpose(0, 1))
    made = made if alpha == 1 else (made * alpha).to(a.dtype)
    if bias is None:
        return made
    return made + (bias if beta == 1 else (bias * beta).to(a.dtype))


@op("Einsum")
def einsum(node: Node, *values: Tensor) -> Tensor:
    """A sum of products over named dimensions."""
    return torch.einsum(node.get("equation").replace(" ", ""), *values)


@op("MatMulInteger", known=(2, 3))
def matmul_integer(node: Node, a: Tensor, b: Tensor, a_zero: Value = None, b_zero: Value = None) -> Tensor:
    """A product of 8-bit integers less their zero points, in 32 bits."""
    left, right = a.to(torch.int32), b.to(torch.int32)
    if a_zero is not None:
        zero = materialise(a_zero).to(torch.int32)
        left = left - (zero.unsqueeze(-1) if zero.dim() == 1 and zero.shape[0] > 1 else zero)
    if b_zero is not None:
        right = right - materialise(b_zero).to(torch.int32)
    return torch.matmul(left, right)


@op("Det")
def determinant(node: Node, x: Tensor) -> Tensor:
    """The determinant of matrices. Raises NoForm for half precision."""
    if x.dtype not in (torch.float32, torch.float64):
        raise NoForm(f"a determinant of {str(x.dtype).removeprefix('torch.')}")
    found: Tensor = torch.linalg.det(x)
    return found
