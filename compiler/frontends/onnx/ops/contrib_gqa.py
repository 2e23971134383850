"""com.microsoft's GroupQueryAttention: new keys are written into a past, each batch entry behind its own length.

``seqlens_k`` is the number of keys less one that an entry has with the new ones. Where the new tokens are all there is
(their number is ``total_sequence_length``) the past is taken for empty, whatever it holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.known import Constant, Int, Sizes, Value, ints, materialise
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.ops.attention import Heads, join_heads, rotated, split_heads
from attnc.compiler.frontends.onnx.ops.contrib_masks import same
from attnc.compiler.frontends.onnx.table import MICROSOFT, op
from attnc.compiler.frontends.torch import private


@dataclass(frozen=True)
class Step:
    """Where the new tokens stand."""

    prompt: bool | Tensor
    """Whether they are all there is."""
    before: Tensor | None
    """How many keys stand before them, for each batch entry; None: none."""
    length: Int
    """How many tokens are new."""

    def places(self) -> Tensor:
        """The place of each new token: [batch, tokens], or [1, tokens] where they are the first ones."""
        line = torch.arange(self.length).unsqueeze(0)
        return line if self.before is None else self.before.unsqueeze(1) + line


@op("GroupQueryAttention", domain=MICROSOFT, known=(6,))
def group_query_attention(
    node: Node,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    lengths: Tensor,
    total: Value,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    positions: Tensor | None = None,
    bias: Tensor | None = None,
    sink: Tensor | None = None,
    *others: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """Causal attention of query heads in groups over past and new keys; present keys and values."""
    _refuse(node, others)
    new = _heads(node, query, key, value)
    step = _step(new.q.shape[2], past_key, lengths, total)
    if node.get("do_rotary", 0):
        if cos is None or sin is None:
            raise NoForm("do_rotary without tables")
        new = _turned(node, new, step, cos, sin, positions)
    room = _room(node, step, past_key, total)
    k, v = _written(new.k, past_key, step, room), _written(new.v, past_value, step, room)
    made = _weighed(node, Heads(new.q, k, v), _seen(node, step, lengths, k.shape[2]), bias, sink)
    return join_heads(made), k, v


def _refuse(node: Node, others: tuple[Tensor | None, ...]) -> None:
    """Raise NoForm for what changes the meaning and isn't written here."""
    if any(value is not None for value in others):
        raise NoForm("a quantised cache, or norms of queries and keys")
    if any(node.get(name, "NONE") != "NONE" for name in ("k_quant_type", "v_quant_type")):
        raise NoForm("a quantised cache")
    if node.get("sliding_window_cache", 0):
        raise NoForm("a cache that forgets")
    if node.makes(3):
        raise NoForm("the scores as an output")


def _heads(node: Node, query: Tensor, key: Tensor | None, value: Tensor | None) -> Heads:
    count, shared = node.get("num_heads"), node.get("kv_num_heads")
    if key is None or value is None:
        each = query.shape[-1] // (count + 2 * shared)
        query, key, value = torch.split(query, [count * each, shared * each, shared * each], -1)
    return Heads(split_heads(query, count), split_heads(key, shared), split_heads(value, shared))


def _total(total: Value) -> Int | None:
    """The longest entry's number of keys; None where it is data."""
    return ints(total, "the total length")[0] if isinstance(total, Constant | Sizes) else None


def _step(length: Int, past: Tensor | None, lengths: Tensor, total: Value) -> Step:
    known = _total(total)
    if known is not None and same(known, length):
        return Step(True, None, length)
    if past is None:
        if known is not None:
            raise NoForm("without a past the total length is not that of the query")
        return Step(True, None, length)
    before = lengths.to(torch.int64).reshape(-1) + 1 - length
    if isinstance(known, int) and isinstance(length, int):
        return Step(False, before, length)
    prompt = materialise(total).reshape(()).to(torch.int64) == length
    return Step(prompt, torch.where(prompt, torch.zeros_like(before), before), length)


def _room(node: Node, step: Step, past: Tensor | None, total: Value) -> Int:
    """How many keys past and new ones are given room for: what the present is long."""
    known = _total(total)
    if past is None:
        return step.length
    if known is not None:
        return private.greater(known, past.shape[2])
    if node.makes(1) or node.makes(2):
        raise NoForm("the length of the present is known only when the model runs")
    return past.shape[2] + step.length


def _written(new: Tensor, past: Tensor | None, step: Step, room: Int) -> Tensor:
    """The past up to where the new rows stand, then these, then zeros."""
    if step.before is None:
        return new if same(room, step.length) else F.pad(new, (0, 0, 0, room - step.length))
    assert past is not None
    wide = F.pad(past, (0, 0, 0, room - past.shape[2]))
    kept = wide.masked_fill(torch.arange(room).reshape(-1, 1) >= step.before.reshape(-1, 1, 1, 1), 0)
    return kept.scatter(2, step.places()[:, None, :, None].expand(new.shape), new)


def _turned(node: Node, new: Heads, step: Step, cos: Tensor, sin: Tensor, positions: Tensor | None) -> Heads:
    """Queries and keys turned by their place, or by the positions given; of a prompt these only say the first."""
    places = step.places()
    if positions is not None:
        given = positions.to(torch.int64)
        first = given.reshape(-1)[0] + torch.arange(step.length).unsqueeze(0)
        if step.prompt is True:
            places = first
        else:
            places = given if step.prompt is False else torch.where(step.prompt, first, given)
    tables = [F.embedding(places, table).unsqueeze(1) for table in (cos, sin)]
    width, interleaved = 2 * cos.shape[-1], bool(node.get("rotary_interleaved", 0))
    q, k = (rotated(x, tables[0], tables[1], width, interleaved=interleaved) for x in (new.q, new.k))
    return Heads(q, k, new.v)


def _seen(node: Node, step: Step, lengths: Tensor, room: Int) -> Tensor:
    """Which keys each new token sees: [batch, 1, tokens, keys]; none beyond its entry's length, padding neither."""
    columns, window = torch.arange(room), node.get("local_window_size", -1)
    seen = columns < lengths.to(torch.int64).reshape(-1, 1, 1, 1) + 1
    if not node.get("causal", 1):
        return seen
    places = step.places()[:, None, :, None]
    seen = seen & (columns <= places)
    return seen if window < 0 else seen & (columns > places - window)


def _weighed(node: Node, heads: Heads, seen: Tensor, bias: Tensor | None, sink: Tensor | None) -> Tensor:
    scale = node.get("scale", 0.0) or 1 / math.sqrt(heads.q.shape[-1])
    softcap = node.get("softcap", 0.0)
    smooth = sink is not None or node.get("smooth_softmax", 0)
    if bias is None and not softcap and not smooth:
        return F.scaled_dot_product_attention(
            heads.q, heads.k, heads.v, attn_mask=seen, scale=scale, enable_gqa=heads.groups > 1
        )
    k, v = (x.repeat_interleave(heads.groups, 1) if heads.groups > 1 else x for x in (heads.k, heads.v))
    scores = (torch.matmul(heads.q, k.transpose(-1, -2)) * scale).to(torch.float32)
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    if bias is not None:
        scores = scores + _lowest_hides(bias, k.shape[2])
    weights = _weights(scores.masked_fill(~seen, -math.inf), sink) if smooth else _safe(scores, seen, bias)
    return torch.matmul(weights.to(v.dtype), v)


def _lowest_hides(bias: Tensor, room: Int) -> Tensor:
    """A bias as wide as the keys; the least number of float32 hides a pair as −∞ does, so that a row of it is zero."""
    bias = bias.to(torch.float32)
    bias = bias.masked_fill(bias <= torch.finfo(torch.float32).min, -math.inf)
    return bias if same(bias.shape[-1], room) else F.pad(bias, (0, room - bias.shape[-1]))


def _safe(scores: Tensor, seen: Tensor, bias: Tensor | None) -> Tensor:
    """Weights, zero in a row that sees nothing; without a bias each row sees itself."""
    scores = scores.masked_fill(~seen, -math.inf)
    return torch.softmax(scores, -1) if bias is None else torch.ops.aten._safe_softmax.default(scores, -1)


def _weights(scores: Tensor, sink: Tensor | None) -> Tensor:
    """A softmax with one number more in its sum: a head's own, or 0."""
    batch, heads, rows = scores.shape[:3]
    column = torch.zeros(1, dtype=scores.dtype) if sink is None else sink.to(scores.dtype)
    wide = torch.cat((scores, column.reshape(1, -1, 1, 1).expand(batch, heads, rows, 1)), -1)
    return torch.softmax(wide, -1)[..., :-1]
