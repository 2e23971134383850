"""What hides keys in com.microsoft's attentions: lengths and 0/1 masks become a number that is added to scores."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.known import Int
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.ops.attention import Heads

FILL = -10000.0
"""What the operators add to the scores of masked keys unless ``mask_filter_value`` says otherwise."""


def same(a: Int, b: Int) -> bool:
    """Whether two lengths are known to be equal."""
    return a is b or str(a) == str(b)


def added_mask(node: Node, heads: Heads, mask: Tensor | None, bias: Tensor | None, before: Int) -> Tensor | None:
    """All that is added to the scores, broadcast to [batch, heads, queries, keys].

    ``mask`` hides keys by a finite number, so a row whose keys are all masked weighs them as if none was. The order of
    the masks is absolute: the first query stands after ``before`` keys. A pair that causality hides gets the least
    number of its type whatever else hides it.
    """
    made = None if mask is None else _padding(mask, heads, node.get("mask_filter_value", FILL))
    if node.get("unidirectional", 0):
        lowest = torch.finfo(heads.q.dtype).min
        made = torch.where(_causal(heads, before), 0.0 if made is None else made, lowest).to(heads.q.dtype)
    if bias is None or made is None:
        return made if bias is None else bias
    return bias + made


def weighed(
    node: Node, heads: Heads, mask: Tensor | None, bias: Tensor | None, before: Int, shown: bool = False
) -> tuple[Tensor, Tensor | None]:
    """softmax(q·kᵀ·scale + masks)·v, and what the softmax is taken of where that is to be ``shown``.

    It is ``scaled_dot_product_attention`` unless some row may hold nothing but −∞, which here makes NaN.
    """
    scale = node.get("scale", 0.0) or 1 / math.sqrt(heads.q.shape[-1])
    finite = bias is None and (mask is None or math.isfinite(node.get("mask_filter_value", FILL)))
    if finite and not shown:
        seen = _causal(heads, before) if mask is None and node.get("unidirectional", 0) else None
        added = added_mask(node, heads, mask, None, before) if seen is None else seen
        return F.scaled_dot_product_attention(heads.q, heads.k, heads.v, attn_mask=added, scale=scale), None
    added = added_mask(node, heads, mask, bias, before)
    scores = torch.matmul(heads.q, heads.k.transpose(-1, -2)) * scale
    scores = scores if added is None else scores + added
    return torch.matmul(torch.softmax(scores, -1), heads.v), scores


def _causal(heads: Heads, before: Int) -> Tensor:
    """Whether a query sees a key: queries stand after ``before`` keys."""
    return torch.arange(heads.k.shape[2]) <= torch.arange(heads.q.shape[2]).unsqueeze(1) + before


def _padding(mask: Tensor, heads: Heads, fill: float) -> Tensor | None:
    """A mask over keys as a number for each: 0, or ``fill`` where it is hidden. None where it says nothing."""
    total = heads.k.shape[2]
    if mask.dim() == 1:
        keep = _by_length(mask, heads.q.shape[0], total)
    elif mask.dim() == 2:
        if isinstance(mask.shape[1], int) and mask.shape[1] == 1 and not same(total, 1):
            return None
        keep = (_of_width(mask, total) > 0)[:, None, None]
    elif mask.dim() == 3:
        keep = (_of_width(mask, total) > 0).unsqueeze(1)
    else:
        raise NoForm(f"a mask of {mask.dim()} dimensions")
    return torch.where(keep, 0.0, fill).to(heads.q.dtype)


def _of_width(mask: Tensor, total: Int) -> Tensor:
    width = mask.shape[-1]
    if isinstance(width, int) and isinstance(total, int) and width != total:
        raise NoForm(f"a mask over {width} of {total} keys")
    return mask


def _by_length(mask: Tensor, batch: Int, total: Int) -> Tensor:
    """Keys before an end, which each batch entry has; and from a start on, where twice as many numbers are given."""
    count, columns = mask.shape[0], torch.arange(total)
    if same(count, batch) or same(count, 3 * batch + 2):
        return (columns < mask[:batch, None])[:, None, None]
    if same(count, 2 * batch):
        return ((columns < mask[:batch, None]) & (columns >= mask[batch:, None]))[:, None, None]
    raise NoForm(f"a mask of {count} numbers for a batch of {batch}")
