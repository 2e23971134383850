"""ai.onnx's Attention and RotaryEmbedding, by the text of operator sets 23 to 28.

Attention becomes PyTorch's ``scaled_dot_product_attention`` where its meaning is exactly that; where scores are
capped or asked for, it is written out. Either way the same passes find it as in any other model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.dtypes import dtype_of
from attnc.compiler.frontends.onnx.errors import wrong
from attnc.compiler.frontends.onnx.known import Int
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.table import op


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values as [batch, heads, length, features]."""

    q: Tensor
    k: Tensor
    v: Tensor

    @property
    def groups(self) -> int:
        """Query heads for each key/value head."""
        return int(self.q.shape[1]) // int(self.k.shape[1])


def split_heads(x: Tensor, count: int) -> Tensor:
    """[batch, length, heads·features] → [batch, heads, length, features]."""
    return x.reshape(*x.shape[:-1], count, x.shape[-1] // count).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[batch, heads, length, features] → [batch, length, heads·features]."""
    return x.transpose(1, 2).flatten(2)


@op("Attention", since=23)
def attention(
    node: Node,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    valid: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """softmax(softcap(q·kᵀ·scale) + mask)·v over past and new keys; a row that sees no key is zero.

    Source: the operator's text, and onnx/onnx#7274 (each key/value head serves a run of query heads), #7297 (causal
    after the whole past).
    """
    packed = q.dim() == 3
    if packed:
        queries, keys = node.get("q_num_heads"), node.get("kv_num_heads")
        if not queries or not keys:
            raise wrong(node, "inputs of 3 dimensions need q_num_heads and kv_num_heads")
        q, k, v = split_heads(q, queries), split_heads(k, keys), split_heads(v, keys)
    before: Int = 0
    if past_key is not None and past_value is not None:
        before = past_key.shape[2]
        k, v = torch.cat((past_key, k), 2), torch.cat((past_value, v), 2)
    heads = Heads(q, k, v)
    if heads.q.shape[1] % heads.k.shape[1]:
        raise wrong(node, f"{q.shape[1]} query heads are no multiple of {k.shape[1]} key/value heads")
    allowed, bias = _visible(node, heads, mask, before, valid)
    scores = node.get("qk_matmul_output_mode", 0) if node.makes(3) else None
    softcap = node.get("softcap", 0.0)
    scale = node.get("scale") or 1 / math.sqrt(q.shape[-1])
    stats = dtype_of(node.get("softmax_precision")) if node.get("softmax_precision") else None
    shown = None
    plain = scores is None and not softcap and stats in (None, q.dtype, torch.float32)
    if plain and (bias is None or allowed is None):
        made = _fused(heads, allowed, bias, scale)
    else:
        made, shown = written_out(heads, allowed, bias, scale, softcap, stats, scores)
    return join_heads(made) if packed else made, k, v, shown


def _visible(
    node: Node, heads: Heads, mask: Tensor | None, before: Int, valid: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """What pairs see each other (True: they do), and what is added to scores."""
    length, total = heads.q.shape[2], heads.k.shape[2]
    allowed, bias = None, None
    if mask is not None:
        mask = _widened(mask, total)
        allowed, bias = (mask, None) if mask.dtype == torch.bool else (None, mask)
    rows, columns = torch.arange(length).unsqueeze(1), torch.arange(total)
    if valid is not None:
        valid = valid.to(torch.int64).reshape(-1, 1, 1, 1)
    places = rows + before if valid is None else rows + (valid - length)
    left, right = node.get("left_window_size", -1), node.get("right_window_size", -1)
    for wanted, condition in (
        (node.get("is_causal", 0), lambda: columns <= places),
        (left >= 0, lambda: places - columns <= left),
        (right >= 0, lambda: columns - places <= right),
        (valid is not None, lambda: torch.lt(columns, valid)),  # type: ignore[arg-type]
    ):
        if wanted:
            allowed = condition() if allowed is None else allowed & condition()
    return allowed, bias


def _widened(mask: Tensor, total: Int) -> Tensor:
    """A mask as wide as there are keys: what it doesn't reach is hidden."""
    width = mask.shape[-1]
    if (isinstance(width, int) and width == 1) or width is total or str(width) == str(total):
        return mask
    missing = total - width
    if isinstance(missing, int) and missing <= 0:
        return mask
    return F.pad(mask, (0, missing), value=False if mask.dtype == torch.bool else -math.inf)


def _fused(heads: Heads, allowed: Tensor | None, bias: Tensor | None, scale: float) -> Tensor:
    mask = allowed if bias is None else bias
    if mask is not None and mask.dim() == 1:
        mask = mask.unsqueeze(0)
    return F.scaled_dot_product_attention(
        heads.q, heads.k, heads.v, attn_mask=mask, scale=scale, enable_gqa=heads.groups > 1
    )


def written_out(
    heads: Heads,
    allowed: Tensor | None,
    bias: Tensor | None,
    scale: float,
    softcap: float = 0.0,
    stats: torch.dtype | None = None,
    shown: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Attention op by op, and the scores at stage ``shown``: 0 the products, 1 capped, 2 with masks, 3 the weights."""
    q, k, v = heads.q, heads.k, heads.v
    if heads.groups > 1:
        k, v = k.repeat_interleave(heads.groups, 1), v.repeat_interleave(heads.groups, 1)
    scores = torch.matmul(q, k.transpose(-1, -2)) * scale
    stages = [scores]
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    stages.append(scores)
    if bias is not None:
        scores = scores + bias
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    stages.append(scores)
    wide = scores if stats is None else scores.to(stats)
    weights = torch.ops.aten._safe_softmax.default(wide, -1).to(q.dtype)
    stages.append(weights)
    return torch.matmul(weights, v), None if shown is None else stages[shown]


@op("RotaryEmbedding", since=23)
def rotary_embedding(node: Node, x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None) -> Tensor:
    """The first features of each head turned by their position, in halves or in neighbouring pairs."""
    packed = x.dim() == 3
    if packed:
        if not node.get("num_heads", 0):
            raise wrong(node, "an input of 3 dimensions needs num_heads")
        x = split_heads(x, node.get("num_heads"))
    width = node.get("rotary_embedding_dim", 0) or x.shape[-1]
    if positions is not None:
        cos, sin = F.embedding(positions.to(torch.int64), cos), F.embedding(positions.to(torch.int64), sin)
    cos, sin = cos[..., : width // 2].unsqueeze(1), sin[..., : width // 2].unsqueeze(1)
    made = rotated(x, cos, sin, width, interleaved=bool(node.get("interleaved", 0)))
    return join_heads(made) if packed else made


def rotated(x: Tensor, cos: Tensor, sin: Tensor, width: int, *, interleaved: bool) -> Tensor:
    """x with its first ``width`` features turned: feature pairs (i, i + width/2), or (2i, 2i + 1)."""
    part = x[..., :width] if width != x.shape[-1] else x
    if interleaved:
        first, second = part[..., 0::2], part[..., 1::2]
    else:
        first, second = part[..., : width // 2], part[..., width // 2 :]
    real, imaginary = first * cos - second * sin, first * sin + second * cos
    turned = torch.stack((real, imaginary), -1).flatten(-2) if interleaved else torch.cat((real, imaginary), -1)
    return turned if width == x.shape[-1] else torch.cat((turned, x[..., width:]), -1)
