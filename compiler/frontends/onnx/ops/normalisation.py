"""Normalisations: statistics in float32 for shorter types, as the operators' stash type says."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.dtypes import dtype_of
from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.table import MICROSOFT, op


@op("LayerNormalization")
@op("LayerNormalization", domain=MICROSOFT)
def layer_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> tuple[Tensor, ...]:
    """(x − mean)/√(variance + epsilon) over the dimensions from ``axis`` on; outputs also mean and 1/√(…)."""
    axis, epsilon = node.get("axis", -1) % x.dim(), node.get("epsilon", 1e-5)
    stash = dtype_of(node.get("stash_type", 1))
    shape = x.shape[axis:]
    if not (node.makes(1) or node.makes(2)) and scale.shape == shape and (bias is None or bias.shape == shape):
        return (F.layer_norm(x, shape, scale, bias, epsilon),)
    dims, wide = list(range(axis, x.dim())), x.to(stash)
    mean = wide.mean(dims, keepdim=True)
    inverse = torch.rsqrt((wide - mean).square().mean(dims, keepdim=True) + epsilon)
    made = ((wide - mean) * inverse).to(x.dtype) * scale
    return (made if bias is None else made + bias, mean, inverse)


@op("SimplifiedLayerNormalization")
@op("SimplifiedLayerNormalization", domain=MICROSOFT)
@op("RMSNormalization")
def rms_norm(node: Node, x: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """x/√(mean of squares + epsilon)·scale over the dimensions from ``axis`` on."""
    axis, stash = node.get("axis", -1) % x.dim(), dtype_of(node.get("stash_type", 1))
    wide = x.to(stash)
    inverse = torch.rsqrt(wide.square().mean(list(range(axis, x.dim())), keepdim=True) + node.get("epsilon", 1e-5))
    made = (wide * inverse).to(x.dtype) * scale
    return (made.to(scale.dtype), inverse) if node.makes(1) else (made.to(scale.dtype),)


def _residual(node: Node, x: Tensor, skip: Tensor, bias: Tensor | None) -> Tensor:
    """The sum a residual block goes on with, in float32 at least."""
    if node.makes(1) or node.makes(2):
        raise NoForm("the mean and the deviation, which onnxruntime leaves out")
    wide = torch.promote_types(x.dtype, torch.float32)
    total = x.to(wide) + skip.to(wide)
    return total if bias is None else total + bias.to(wide)


@op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(
    node: Node, x: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor | None, ...]:
    """A layer norm of x + skip + bias; the sum is output 3."""
    total = _residual(node, x, skip, bias)
    offset = None if beta is None else beta.to(total.dtype)
    made = F.layer_norm(total, total.shape[-1:], gamma.to(total.dtype), offset, node.get("epsilon", 1e-12))
    return made.to(x.dtype), None, None, total.to(x.dtype)


@op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(
    node: Node, x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None
) -> tuple[Tensor | None, ...]:
    """An RMS norm of x + skip + bias; the sum is output 3."""
    total = _residual(node, x, skip, bias)
    inverse = torch.rsqrt(total.square().mean(-1, keepdim=True) + node.get("epsilon", 1e-12))
    return (total * inverse * gamma.to(total.dtype)).to(x.dtype), None, None, total.to(x.dtype)


@op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(
    node: Node,
    ids: Tensor,
    segments: Tensor | None,
    words: Tensor,
    positions: Tensor,
    kinds: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """Embeddings of words, positions and segments, summed and normalised; how often the mask is 1; the sum."""
    places = torch.arange(ids.shape[1]).unsqueeze(0) if position_ids is None else position_ids
    total = F.embedding(ids.to(torch.int64), words) + F.embedding(places.to(torch.int64), positions)
    if segments is not None and kinds is not None:
        total = total + F.embedding(segments.to(torch.int64), kinds)
    counts = None
    if node.makes(1):
        kept = torch.zeros_like(ids) if mask is None else mask == 1
        counts = kept.sum(1).to(torch.int32)
    return F.layer_norm(total, total.shape[-1:], gamma, beta, node.get("epsilon", 1e-12)), counts, total


@op("BatchNormalization")
def batch_norm(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> Tensor | tuple[Tensor, ...]:
    """Each channel less its stored mean over its stored deviation.

    In training mode the batch's own, and the stored ones moved toward them. Before operator set 14 more than one output
    meant training: NoForm.
    """
    shape = (1, -1) + (1,) * (x.dim() - 2)
    training = node.get("training_mode", 0)
    if not training and any(node.makes(place) for place in range(1, len(node.outputs))):
        raise NoForm("it updates statistics in the way of before operator set 14")
    moved: tuple[Tensor, ...] = ()
    if training:
        dims, keep = [0, *range(2, x.dim())], node.get("momentum", 0.9)
        batch_mean = x.mean(dims)
        batch_var = (x - batch_mean.reshape(shape)).square().mean(dims)
        moved = (mean * keep + batch_mean * (1 - keep), var * keep + batch_var * (1 - keep))
        mean, var = batch_mean, batch_var
    factor = scale / torch.sqrt(var + node.get("epsilon", 1e-5))
    made = (x * factor.reshape(shape) + (bias - mean * factor).reshape(shape)).to(x.dtype)
    return (made, *moved) if moved else made


@op("InstanceNormalization")
def instance_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Each channel of each sample normalised alone."""
    return F.instance_norm(x, weight=scale, bias=bias, eps=node.get("epsilon", 1e-5))


@op("GroupNormalization", since=21)
def group_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Groups of channels normalised together."""
    return F.group_norm(x, node.get("num_groups"), scale, bias, node.get("epsilon", 1e-5))


@op("GroupNormalization", until=20)
def group_norm_by_group(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """As above, with a scale for each group; superseded by operator set 21."""
    groups = node.get("num_groups")
    each = x.shape[1] // groups
    factor, offset = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return F.group_norm(x, groups, factor, offset, node.get("epsilon", 1e-5))


@op("LpNormalization")
def lp_norm(node: Node, x: Tensor) -> Tensor:
    """x over its 1- or 2-norm along an axis, 0 where that is 0."""
    norm = torch.linalg.vector_norm(x, node.get("p", 2), node.get("axis", -1), keepdim=True)
    return torch.where(norm == 0, torch.zeros_like(x), x / norm)


@op("LRN")
def local_response_norm(node: Node, x: Tensor) -> Tensor:
    """x over a power of the squares of neighbouring channels."""
    size = node.get("size")
    squares = F.pad(x.square(), [0, 0] * (x.dim() - 2) + [(size - 1) // 2, size // 2])
    sums = squares.narrow(1, 0, x.shape[1])
    for place in range(1, size):
        sums = sums + squares.narrow(1, place, x.shape[1])
    factor: Tensor = (node.get("bias", 1.0) + node.get("alpha", 1e-4) / size * sums) ** node.get("beta", 0.75)
    return x / factor
