"""com.microsoft's Attention, MultiHeadAttention and DecoderMaskedMultiHeadAttention.

Source: onnxruntime's docs/ContribOperators.md; what it leaves open is as onnxruntime's CPU kernels answer.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.errors import NoForm, wrong
from attnc.compiler.frontends.onnx.known import Constant, Int, Value, number
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.ops.attention import Heads, join_heads, split_heads
from attnc.compiler.frontends.onnx.ops.contrib_masks import FILL, same, weighed
from attnc.compiler.frontends.onnx.table import MICROSOFT, op


@op("Attention", domain=MICROSOFT)
def packed_attention(
    node: Node,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_length: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """Attention of x with itself and ``past`` [2, batch, heads, length, features], projected by one weight."""
    if node.get("do_rotary", 0):
        raise NoForm("do_rotary: onnxruntime's CPU kernel doesn't turn keys here, and the text doesn't say how")
    if node.get("past_present_share_buffer", 0) or past_length is not None:
        raise NoForm("past and present in one buffer")
    if past is not None and attention_bias is not None:
        raise NoForm("a past and an attention_bias")
    count = node.get("num_heads")
    sizes = node.get("qkv_hidden_sizes") or [weights.shape[1] // 3] * 3
    if node.makes(1) and sizes[1] != sizes[2]:
        raise NoForm("keys and values of unlike widths in one present")
    projected = torch.matmul(x, weights)
    projected = projected if bias is None else projected + bias
    q, k, v = (split_heads(part, count) for part in torch.split(projected, sizes, -1))
    before: Int = 0
    if past is not None:
        before = past.shape[3]
        k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
    made, _ = weighed(node, Heads(q, k, v), mask, attention_bias, before)
    return join_heads(made), torch.stack((k, v)) if node.makes(1) else None


@op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    node: Node,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_length: Tensor | None = None,
    cache_indirection: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """Attention over projected queries, keys and values, given apart or packed; output 3 is what is weighed."""
    if past_length is not None or cache_indirection is not None:
        raise NoForm("past and present in one buffer")
    heads = _heads(node, query, key, value, bias)
    if node.get("unidirectional", 0) and not same(heads.q.shape[2], heads.k.shape[2]):
        raise NoForm("unidirectional over another sequence: onnxruntime hides nothing from its last query")
    before: Int = 0
    if past_key is not None and past_value is not None:
        before = past_key.shape[2]
        if mask is not None and mask.dim() == 2 and same(mask.shape[1], heads.k.shape[2]) and not same(before, 0):
            raise NoForm("a mask over the new keys only")
        heads = Heads(heads.q, torch.cat((past_key, heads.k), 2), torch.cat((past_value, heads.v), 2))
    made, scores = weighed(node, heads, mask, attention_bias, before, shown=node.makes(3))
    return join_heads(made), heads.k, heads.v, scores


def _heads(node: Node, query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None) -> Heads:
    """Queries, keys and values by head, biases added."""
    count = node.get("num_heads")
    if key is not None and key.dim() == 4 and value is not None:
        if bias is not None:
            raise NoForm("a bias for keys that are given by head")
        return Heads(split_heads(query, count), key, value)
    q, k, v = _apart(node, query, key, value)
    if bias is not None:
        first, second = q.shape[-1], q.shape[-1] + k.shape[-1]
        q, k, v = q + bias[:first], k + bias[first:second], v + bias[second:]
    return Heads(*(split_heads(part, count) for part in (q, k, v)))


def _apart(node: Node, query: Tensor, key: Tensor | None, value: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as [batch, length, heads·features]."""
    if key is None:
        if query.dim() != 5:
            raise NoForm(f"a packed query of {query.dim()} dimensions")
        q, k, v = (query.select(3, i).flatten(2) for i in range(3))
        return q, k, v
    if value is None:
        if key.dim() != 5:
            raise wrong(node, "it has a key and no value")
        return query, key.select(3, 0).flatten(2), key.select(3, 1).flatten(2)
    return query, key, value


@op("DecoderMaskedMultiHeadAttention", domain=MICROSOFT, known=(8,))
def decoder_attention(
    node: Node,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_length: Tensor | None = None,
    beam_width: Value = None,
    cache_indirection: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """One query over given keys, or over a buffer of keys into which its own is written behind ``past_length``."""
    if cache_indirection is not None or (isinstance(beam_width, Constant) and number(beam_width, "the beam") != 1):
        raise NoForm("keys that are picked by beam")
    if beam_width is not None and not isinstance(beam_width, Constant):
        raise NoForm("the beam width is known only when the model runs")
    if past_key is None or past_value is None:
        return _of_given_keys(node, query, key, value, mask, attention_bias, bias)
    if not node.get("past_present_share_buffer", 0) or past_length is None:
        raise NoForm("a past that isn't a buffer")
    if key is None or value is None:
        raise NoForm("a packed query")
    new = _heads(node, query, key, value, bias)
    return _of_buffer(node, new, mask, attention_bias, past_key, past_value, past_length)


def _of_given_keys(
    node: Node,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    mask: Tensor | None,
    attention_bias: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """Cross attention over keys [batch, heads, length, features]."""
    if key is None or value is None or key.dim() != 4 or attention_bias is not None or bias is not None:
        raise NoForm("keys neither given by head nor in a buffer")
    heads = Heads(split_heads(query, node.get("num_heads")), key, value)
    made, scores = weighed(node, heads, mask, None, 0, shown=node.makes(3))
    return join_heads(made), None, None, scores


def _of_buffer(
    node: Node,
    new: Heads,
    mask: Tensor | None,
    attention_bias: Tensor | None,
    past_key: Tensor,
    past_value: Tensor,
    past_length: Tensor,
) -> tuple[Tensor | None, ...]:
    """Self attention over a buffer of which ``past_length`` rows and the new one are seen."""
    if node.makes(3):
        raise NoForm("scores as wide as the past, which is data")
    place = past_length.to(torch.int64).reshape(1, 1, 1, 1)
    k = past_key.scatter(2, place.expand(new.k.shape), new.k)
    v = past_value.scatter(2, place.expand(new.v.shape), new.v)
    seen = torch.arange(k.shape[2]) <= place
    fill = node.get("mask_filter_value", FILL)
    added = None
    if mask is not None:
        added = torch.where(_wide(mask, k.shape[2]) > 0, 0.0, fill).to(k.dtype)[:, None, None]
    if attention_bias is not None:
        wide = _wide(attention_bias, k.shape[2])
        added = wide if added is None else wide + added
    scale = node.get("scale", 0.0) or new.q.shape[-1] ** -0.5
    if added is None:
        made = F.scaled_dot_product_attention(new.q, k, v, attn_mask=seen, scale=scale)
    else:
        scores = torch.matmul(new.q, k.transpose(-1, -2)) * scale + added
        made = torch.matmul(torch.softmax(scores.masked_fill(~seen, float("-inf")), -1), v)
    return join_heads(made), k, v, None


def _wide(x: Tensor, width: Int) -> Tensor:
    """x with zeros up to as many columns as the buffer has rows."""
    return x if same(x.shape[-1], width) else F.pad(x, (0, width - x.shape[-1]))
