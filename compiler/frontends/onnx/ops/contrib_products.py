"""com.microsoft's products of matrices: scaled, transposed and activated ones, and those of quantised numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.known import Int, Value
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.ops import matmul
from attnc.compiler.frontends.onnx.table import MICROSOFT, entry_of, op


@op("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """alpha·A·B of (stacks of) matrices; each may be transposed, and its first dimension moved behind the others."""
    left = _turned(a, node.get("transA", 0), node.get("transBatchA", 0))
    right = _turned(b, node.get("transB", 0), node.get("transBatchB", 0))
    made, alpha = torch.matmul(left, right), node.get("alpha", 1.0)
    return made if alpha == 1 else made * alpha


def _turned(x: Tensor, matrices: int, batch: int) -> Tensor:
    if x.dim() < 2:
        return x
    if batch:
        x = x.permute(*range(1, x.dim() - 1), 0, x.dim() - 1)
    return x.transpose(-1, -2) if matrices else x


_ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "Relu": lambda x: torch.relu(x),
    "Tanh": lambda x: torch.tanh(x),
    "Sigmoid": lambda x: torch.sigmoid(x),
    "LeakyRelu": lambda x, alpha=0.01: F.leaky_relu(x, alpha),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: torch.clamp(x * alpha + beta, 0, 1),
}
"""Functions put behind a product, with their parameters in order."""


def activated(x: Tensor, name: str, parameters: list[float]) -> Tensor:
    """A named function of x. Raises NoForm for one that isn't known here."""
    if not name:
        return x
    if name == "Clip" and len(parameters) == 2:
        return torch.clamp(x, parameters[0], parameters[1])
    if name not in _ACTIVATIONS:
        raise NoForm(f"the activation {name}")
    return _ACTIVATIONS[name](x, *parameters)


@op("FusedGemm", domain=MICROSOFT, known=(2,))
def fused_gemm(node: Node, a: Tensor, b: Tensor, c: Value = None) -> Tensor:
    """A Gemm and a function of it."""
    given = [node.get(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    parameters = [value for value in given if value is not None]
    return activated(matmul.gemm(node, a, b, c), node.get("activation", ""), parameters)


@op("FusedConv", domain=MICROSOFT)
def fused_conv(node: Node, x: Tensor, w: Tensor, bias: Tensor | None = None, added: Tensor | None = None) -> Tensor:
    """A Conv, what is added to it, and a function of both."""
    entry = entry_of("", "Conv", 22)
    if entry is None:
        raise NoForm("Conv has no form in torch")
    made = entry.form(node, x, w, bias)
    made = made if added is None else made + added
    return activated(made, node.get("activation", ""), node.get("activation_params", []))


@op("MatMulNBits", domain=MICROSOFT)
def matmul_of_bits(
    node: Node,
    x: Tensor,
    packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    groups: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """x·Wᵀ (+ bias) where W [N, K] is stored in 2, 4 or 8 bits, with a scale and a zero point for each block of K."""
    bits, count, width, block = (node.get(name) for name in ("bits", "N", "K", "block_size"))
    bits = bits or 4
    if groups is not None or node.get("weight_prepacked", 0) or bits not in (2, 4, 8):
        raise NoForm("weights that are packed in another order")
    blocks = math.ceil(width / block)
    numbers = _unpacked(packed.reshape(count, blocks, -1), bits).to(x.dtype)
    middle: Any = 2 ** (bits - 1)
    if zeros is not None and zeros.dtype == torch.uint8:
        middle = _unpacked(zeros.reshape(count, -1), bits)[:, :blocks].to(x.dtype).unsqueeze(-1)
    elif zeros is not None:
        middle = zeros.reshape(count, blocks, 1)
    weight = ((numbers - middle) * scales.reshape(count, blocks, 1)).reshape(count, blocks * block)
    return F.linear(x, weight[:, :width], bias)


def _unpacked(x: Tensor, bits: int) -> Tensor:
    """Bytes as the numbers of ``bits`` bits they hold, the low ones first."""
    if bits == 8:
        return x
    parts = [(x >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
    return torch.stack(parts, -1).flatten(-2)


def _product(a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None) -> Tensor:
    """A product of 8-bit integers less their zero points."""
    left, right = a.to(torch.int32), b.to(torch.int32)
    left = left if a_zero is None else left - a_zero.to(torch.int32)
    right = right if b_zero is None else right - b_zero.to(torch.int32)
    return torch.matmul(left, right)


@op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    node: Node,
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """A product of 8-bit integers as the numbers they stand for."""
    if not (_is_one(a_scale) and (a_zero is None or _is_one(a_zero))):
        raise NoForm("a scale for each row of A")
    made = _product(a, b, a_zero, b_zero).to(a_scale.dtype) * (a_scale * b_scale)
    return made if bias is None else made + bias


def _is_one(x: Tensor) -> bool:
    lengths: list[Int] = list(x.shape)
    return all(isinstance(length, int) and length == 1 for length in lengths)


@op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_matmul(
    node: Node, a: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """A quantised to 8 bits by its least and greatest number, times 8-bit integers."""
    least, greatest = torch.clamp(a.amin(), max=0), torch.clamp(a.amax(), min=0)
    scale = (greatest - least) / 255
    zero = torch.clamp(torch.round(-least / scale), 0, 255)
    numbers = torch.clamp(torch.round(a / scale) + zero, 0, 255)
    made = _product(numbers, b, zero, b_zero).to(a.dtype) * (scale * b_scale)
    return made if bias is None else made + bias
