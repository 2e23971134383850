"""com.microsoft's elementwise operators, rotation, normalisations and what has an ai.onnx twin."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.errors import NoForm, wrong
from attnc.compiler.frontends.onnx.known import Value, number
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.ops import layout
from attnc.compiler.frontends.onnx.ops.attention import join_heads, rotated, split_heads
from attnc.compiler.frontends.onnx.ops.indexing import gather_nd
from attnc.compiler.frontends.onnx.table import MICROSOFT, op


@op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(node: Node, x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The first features of each head turned by their position: one for each token, or that of the first token."""
    if node.get("scale", 1.0) != 1.0:
        raise NoForm("scale, which onnxruntime's CPU kernel leaves out")
    width, heads = node.get("rotary_embedding_dim", 0), node.get("num_heads", 0)
    packed = x.dim() == 3
    if packed:
        if width and not heads:
            raise wrong(node, "rotary_embedding_dim needs num_heads")
        each = x.shape[-1] // heads if width else 2 * cos.shape[-1]
        x = split_heads(x, heads or x.shape[-1] // each)
    width = width or 2 * cos.shape[-1]
    if width > x.shape[-1] or 2 * cos.shape[-1] != width:
        raise NoForm(f"tables of {cos.shape[-1]} columns for {width} of {x.shape[-1]} features")
    places = positions.to(torch.int64)
    if positions.dim() < 2:
        places = (places.reshape(-1)[0] + torch.arange(x.shape[2])).unsqueeze(0)
    tables = [F.embedding(places, table).unsqueeze(1) for table in (cos, sin)]
    made = rotated(x, tables[0], tables[1], width, interleaved=bool(node.get("interleaved", 0)))
    return join_heads(made) if packed else made


@op("Gelu", domain=MICROSOFT)
def gelu(node: Node, x: Tensor) -> Tensor:
    """x·Φ(x)."""
    return F.gelu(x)


@op("BiasGelu", domain=MICROSOFT)
def bias_gelu(node: Node, x: Tensor, bias: Tensor) -> Tensor:
    """Gelu of x + bias."""
    return F.gelu(x + bias)


@op("FastGelu", domain=MICROSOFT)
def fast_gelu(node: Node, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Gelu of x + bias by the tanh approximation."""
    return F.gelu(x if bias is None else x + bias, approximate="tanh")


@op("QuickGelu", domain=MICROSOFT)
def quick_gelu(node: Node, x: Tensor) -> Tensor:
    """x·σ(alpha·x)."""
    alpha = node.get("alpha", 1.702)
    return F.silu(x) if alpha == 1 else x * torch.sigmoid(alpha * x)


@op("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(node: Node, x: Tensor, bias: Tensor) -> Tensor:
    """The first half of x + bias times the Gelu of the second."""
    left, right = torch.chunk(x + bias, 2, -1)
    return left * F.gelu(right)


@op("BiasAdd", domain=MICROSOFT)
def bias_add(node: Node, x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    """x + bias + skip."""
    return x + bias + skip


@op("BiasDropout", domain=MICROSOFT, known=(3, 4))
def bias_dropout(
    node: Node,
    x: Tensor,
    bias: Tensor,
    skip: Tensor | None = None,
    ratio: Value = None,
    training: Value = None,
) -> tuple[Tensor, ...]:
    """x + bias + skip: nothing is dropped when a model only answers. Raises NoForm in training mode."""
    if training is not None and number(training, "training_mode"):
        raise NoForm("it drops elements at random")
    total = x + bias
    mask = (torch.ones_like(total, dtype=torch.bool),) if node.makes(1) else ()
    return (total if skip is None else total + skip, *mask)


@op("ExpandDims", domain=MICROSOFT, known=(1,))
def expand_dims(node: Node, x: Tensor, axis: Value) -> Tensor:
    """A dimension of length 1 put in."""
    return x.unsqueeze(int(number(axis, "the axis")))


@op("Inverse", domain=MICROSOFT)
def inverse(node: Node, x: Tensor) -> Tensor:
    """The inverse of matrices."""
    found: Tensor = torch.linalg.inv(x)
    return found


@op("CDist", domain=MICROSOFT)
def distances(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """The distance of each row of a from each of b, or its square."""
    squares = (a.unsqueeze(-2) - b.unsqueeze(-3)).square().sum(-1)
    return torch.sqrt(squares) if node.get("metric", "sqeuclidean") == "euclidean" else squares


@op("GatedRelativePositionBias", domain=MICROSOFT)
def gated_position_bias(
    node: Node,
    query: Tensor,
    query_bias: Tensor,
    positions: Tensor,
    weight: Tensor,
    bias: Tensor,
    factor: Tensor,
    offsets: Tensor | None = None,
) -> Tensor:
    """A bias by position [1, heads, length, length] times a gate that each head computes of its queries."""
    if offsets is not None:
        raise NoForm("tokens without padding")
    heads = split_heads(query + query_bias, node.get("num_heads"))
    half = weight.shape[1] // 2
    gates = torch.matmul(heads, weight) + bias
    sums = torch.sigmoid(gates.reshape(*gates.shape[:-1], 2, half).sum(-1))
    update, reset = sums[..., :1], sums[..., 1:]
    return (update * (reset * factor - 1.0) + 2.0) * positions


@op("GroupNorm", domain=MICROSOFT)
def group_norm(node: Node, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Groups of channels normalised together, then perhaps x·σ(x); channels come last unless said otherwise."""
    last = node.get("channels_last", 1)
    x = x.movedim(-1, 1) if last else x
    made = F.group_norm(x, node.get("groups"), gamma.to(x.dtype), beta.to(x.dtype), node.get("epsilon", 1e-5))
    made = F.silu(made) if node.get("activation", 0) else made
    return made.movedim(1, -1) if last else made


op("Trilu", domain=MICROSOFT, known=(1,))(layout.triangle)
op("Pad", domain=MICROSOFT, known=(1, 2))(layout.pad)
op("GatherND", domain=MICROSOFT, stored=True)(gather_nd)
