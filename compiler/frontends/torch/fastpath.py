"""The two fused inference operators of nn.TransformerEncoderLayer and nn.MultiheadAttention, written out.

In eval mode without gradients torch calls one opaque operator per layer, which would hide its attention. The
decompositions below say what the operators compute; tracing runs them in place of the calls. A call they don't
describe (nested tensors, a 2-D mask without a type) returns ``NotImplemented``: the operator then stays as it is.

Masks: type 0 is [L, L], type 1 is [B, L] over keys, type 2 is [B, H, L, L]; True, or any non-zero float, masks. A row
whose keys are all masked is NaN in the operators, and 0 here, as in scaled_dot_product_attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Any:
    """``aten::_transformer_encoder_layer_fwd``: src [B, L, E] → [B, L, E], any float dtype."""
    if not _plain(src, mask, mask_type):
        return NotImplemented

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), weight, bias, eps)

    def attend(x: Tensor) -> Tensor:
        qkv = (qkv_weight, qkv_bias)
        return _attention(x, x, x, num_heads, *qkv, proj_weight, proj_bias, mask, mask_type, need_weights=False)[0]

    def feed_forward(x: Tensor) -> Tensor:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(hidden) if use_gelu else F.relu(hidden), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attend(norm(src, norm_weight_1, norm_bias_1))
        return x + feed_forward(norm(x, norm_weight_2, norm_bias_2))
    x = norm(src + attend(src), norm_weight_1, norm_bias_1)
    return norm(x + feed_forward(x), norm_weight_2, norm_bias_2)


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    """``aten::_native_multi_head_attention``: output [B, L, E], weights [B, L, S] or, not averaged, [B, H, L, S]."""
    if not _plain(query, mask, mask_type) or not need_weights:
        return NotImplemented
    out, weights = _attention(
        query, key, value, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type, need_weights=True
    )
    return out, weights.sum(1) / num_head if average_attn_weights else weights


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
    aten._native_multi_head_attention.default: multi_head_attention,
}


def _plain(x: Tensor, mask: Tensor | None, mask_type: int | None) -> bool:
    if x.is_nested or x.dim() != 3:
        return False
    return mask is None or (mask_type, mask.dim()) in ((0, 2), (1, 2), (2, 4))


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None,
    mask_type: int | None,
    need_weights: bool,
) -> tuple[Tensor, Tensor]:
    width = query.shape[-1]
    weights, biases = torch.split(qkv_weight, width), torch.split(qkv_bias, width)

    def project(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(x, weight, bias).view(*x.shape[:2], heads, width // heads).transpose(1, 2)

    q, k, v = (project(*each) for each in zip((query, key, value), weights, biases, strict=True))
    visible = None if mask is None else ~_as_bool(_broadcast(mask, mask_type))
    if need_weights:
        scores = torch.matmul(q / q.shape[-1] ** 0.5, k.transpose(-1, -2))
        if visible is not None:
            scores = scores.masked_fill(~visible, float("-inf"))
        p = aten._safe_softmax.default(scores, -1)
        out = torch.matmul(p, v)
    else:
        p = q
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
    merged = aten.clone.default(out.transpose(1, 2), memory_format=torch.contiguous_format).view(query.shape)
    return F.linear(merged, proj_weight, proj_bias), p


def _broadcast(mask: Tensor, mask_type: int | None) -> Tensor:
    return mask.unsqueeze(1).unsqueeze(1) if mask_type == 1 else mask


def _as_bool(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else aten._to_copy.default(mask, dtype=torch.bool)
