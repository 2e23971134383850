"""Ways in which people write attention.

Each case is a plain function of q, k, v: [B, H, S, D] each, fewer heads in k and v where it says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

B, H, S, D = 2, 4, 64, 32
SCALE = D**-0.5

Attention = Callable[[Tensor, Tensor, Tensor], Tensor | tuple[Tensor, ...]]


@dataclass(frozen=True)
class Case:
    """One spelling; ``kv_heads`` of ``H``."""

    name: str
    run: Attention
    kv_heads: int = H
    fuses: int = 1
    """How many attentions are fused."""
    code: str = ""
    """What the softmaxes of one that isn't fused are left with."""

    def inputs(
        self, dtype: torch.dtype = torch.float32, seed: int = 0, batch: int = B, length: int = S
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Fresh random q, k, v."""
        generator = torch.Generator().manual_seed(seed)
        heads = (H, self.kv_heads, self.kv_heads)
        q, k, v = (torch.randn(batch, h, length, D, generator=generator).to(dtype) for h in heads)
        return q, k, v


CASES: list[Case] = []


def case(kv_heads: int = H, fuses: int = 1, code: str = "") -> Callable[[Attention], Attention]:
    """Add a function to :data:`CASES` under its own name."""

    def add(run: Attention) -> Attention:
        CASES.append(Case(run.__name__, run, kv_heads, fuses, code))
        return run

    return add


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1)


def lower(q: Tensor) -> Tensor:
    return torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril()


def positions(q: Tensor) -> tuple[Tensor, Tensor]:
    at = torch.arange(q.shape[-2])
    return at[:, None], at[None, :]


def additive(keep: Tensor, dtype: torch.dtype, fill: float = -math.inf) -> Tensor:
    return torch.zeros(keep.shape, dtype=dtype).masked_fill(~keep, fill)


# -- scale -----------------------------------------------------------------------------------------------------------


@case()
def divided(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(scores(q, k) / math.sqrt(D), -1) @ v


@case()
def multiplied(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(scores(q, k) * SCALE, dim=3) @ v


@case()
def query_scaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(scores(q * SCALE, k), -1) @ v


@case()
def both_scaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    root = math.sqrt(SCALE)
    return torch.softmax((q * root) @ (k * root).mT, -1) @ v


@case()
def unscaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.softmax(scores(q, k), dim=-1) @ v


@case()
def tensor_scale(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(scores(q, k) / torch.sqrt(torch.tensor(D, dtype=q.dtype)), -1) @ v


# -- masks -----------------------------------------------------------------------------------------------------------


@case()
def additive_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(scores(q, k) * SCALE + additive(lower(q), q.dtype), -1) @ v


@case()
def mask_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(additive(lower(q), q.dtype) + scores(q, k) / math.sqrt(D), -1) @ v


@case()
def masked_fill(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (scores(q, k) * SCALE).masked_fill(~lower(q), -math.inf).softmax(-1) @ v


@case()
def select(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    low = torch.finfo(q.dtype).min
    return torch.where(lower(q), scores(q, k) * SCALE, low).softmax(-1) @ v


@case()
def window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    i, j = positions(q)
    return (scores(q, k) * SCALE).masked_fill((j > i) | (i - j >= 16), -math.inf).softmax(-1) @ v


@case()
def documents(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    i, j = positions(q)
    return (scores(q, k) * SCALE).masked_fill(i // 16 != j // 16, -math.inf).softmax(-1) @ v


@case()
def small_fill(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(scores(q, k) * SCALE + (1 - lower(q).to(q.dtype)) * -10000.0, -1) @ v


@case()
def clamped_then_masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    low = torch.finfo(q.dtype).min
    masked = scores(q, k) * SCALE + additive(lower(q), q.dtype, low)
    return torch.max(masked, torch.tensor(low, dtype=q.dtype)).softmax(-1) @ v


# -- what is done to a score -----------------------------------------------------------------------------------------


@case()
def alibi(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    i, j = positions(q)
    slopes = torch.tensor([2.0 ** (-2 * (h + 1)) for h in range(H)])
    bias = (slopes[:, None, None] * (j - i)).to(q.dtype)
    return (scores(q, k) * SCALE + bias).masked_fill(j > i, -math.inf).softmax(-1) @ v


@case()
def softcap(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (30 * torch.tanh(scores(q, k) * SCALE / 30)).masked_fill(~lower(q), -math.inf).softmax(-1) @ v


@case()
def relative_table(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    i, j = positions(q)
    table = torch.linspace(-1, 1, 255)[:, None] * torch.arange(1, H + 1)
    return (scores(q, k) + table[j - i + 127].permute(2, 0, 1).to(q.dtype)).softmax(-1) @ v


@case()
def clamped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (scores(q, k) * SCALE).clamp(-10, 10).softmax(-1) @ v


@case()
def two_score_terms(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    relative = torch.linspace(-0.1, 0.1, D).to(q.dtype) * torch.arange(q.shape[-2], dtype=q.dtype)[:, None] / 64
    return ((scores(q, k) + q @ relative.T) * SCALE).softmax(-1) @ v


# -- dtypes ----------------------------------------------------------------------------------------------------------


@case()
def float32_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.softmax(scores(q, k) * SCALE, dim=-1, dtype=torch.float32).to(q.dtype) @ v


@case()
def float32_scores(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (scores(q.float(), k.float()) * SCALE).softmax(-1).to(v.dtype) @ v


@case()
def finfo_mask_dropout(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    keep = additive(lower(q), q.dtype, torch.finfo(q.dtype).min)[None, None]
    weights = F.softmax(torch.matmul(q, k.transpose(2, 3)) * SCALE + keep, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(F.dropout(weights, p=0.0, training=False), v).transpose(1, 2).contiguous()


# -- contractions and layouts ----------------------------------------------------------------------------------------


@case()
def einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.einsum("bhqd,bhkd->bhqk", q, k).mul(SCALE).softmax(-1)
    return torch.einsum("bhqk,bhkd->bqhd", weights, v)


@case()
def einsum_ellipsis(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows, columns, values = (x.transpose(1, 2) for x in (q, k, v))
    weights = torch.einsum("...qhd,...khd->...hqk", rows, columns).mul(SCALE).softmax(-1)
    return torch.einsum("...hqk,...khd->...qhd", weights, values)


@case()
def batched_3d(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    flat_q, flat_k, flat_v = (x.flatten(0, 1) for x in (q, k, v))
    return torch.bmm(torch.bmm(flat_q * SCALE, flat_k.transpose(1, 2)).softmax(-1), flat_v).view(q.shape)


@case()
def baddbmm(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    flat_q, flat_k, flat_v = (x.flatten(0, 1) for x in (q, k, v))
    base = torch.zeros(flat_q.shape[0], flat_q.shape[1], flat_k.shape[1], dtype=q.dtype)
    products = torch.baddbmm(base, flat_q, flat_k.transpose(1, 2), beta=0, alpha=SCALE)
    return torch.bmm(products.softmax(-1), flat_v).view(q.shape)


@case()
def sequence_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    return (scores(q, k) / math.sqrt(D)).softmax(-1) @ v


@case()
def scores_transposed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (k @ q.transpose(-2, -1) * SCALE).softmax(-2).transpose(-2, -1) @ v


# -- heads -----------------------------------------------------------------------------------------------------------


@case(kv_heads=2)
def repeated_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = (x[:, :, None].expand(-1, 2, 2, -1, D).reshape(q.shape) for x in (k, v))
    return (scores(q, k) / math.sqrt(D)).softmax(-1) @ v


@case(kv_heads=2)
def interleaved_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
    return (scores(q, k) / math.sqrt(D)).softmax(-1) @ v


@case(kv_heads=2)
def grouped_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    grouped = q.unflatten(1, (2, 2))
    weights = (grouped @ k[:, :, None].transpose(-2, -1) / math.sqrt(D)).softmax(-1)
    return (weights @ v[:, :, None]).reshape(q.shape)


@case(kv_heads=1)
def broadcast_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (scores(q, k) / math.sqrt(D)).softmax(-1) @ v


@case()
def one_query(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (scores(q[:, :, -1:], k) / math.sqrt(D)).softmax(-1) @ v


@case()
def fewer_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (scores(q[:, :, 1::3], k) / math.sqrt(D)).softmax(-1) @ v


# -- around ----------------------------------------------------------------------------------------------------------


@case()
def head_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    gate = torch.linspace(0, 1, H, dtype=q.dtype)[:, None, None]
    return ((scores(q, k) / math.sqrt(D)).softmax(-1) * gate) @ v


@case()
def nan_guard(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (scores(q, k) * SCALE).masked_fill(~lower(q), -math.inf).softmax(-1)
    return torch.nan_to_num(weights) @ v


@case()
def normalized_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (scores(F.normalize(q, dim=-1), F.normalize(k, dim=-1)) * 10.0).softmax(-1) @ v


@case()
def rotated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    angles = torch.arange(q.shape[-2])[:, None] * 1e4 ** (-torch.arange(0, D, 2) / D)
    cos, sin = (torch.cat((t, t), -1).to(q.dtype) for t in (angles.cos(), angles.sin()))

    def turn(x: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    return (scores(turn(q), turn(k)) / math.sqrt(D)).softmax(-1) @ v


@case()
def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@case(kv_heads=2)
def sdpa_grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=lower(q), scale=0.3, enable_gqa=True)


# -- softmax written out, and sinks -----------------------------------------------------------------------------------


@case()
def manual_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    raw = scores(q, k) * SCALE
    exp = (raw - raw.amax(-1, keepdim=True)).exp()
    return (exp / exp.sum(-1, keepdim=True)) @ v


@case()
def manual_softmax_guarded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    raw = (scores(q, k) * SCALE).masked_fill(~lower(q), -math.inf).float()
    top = raw.max(-1, keepdim=True).values
    exp = (raw - top.masked_fill(top == -math.inf, 0.0)).exp().masked_fill(~lower(q), 0.0)
    return (exp * exp.sum(-1, keepdim=True).clamp(min=1e-9).reciprocal()).to(q.dtype) @ v


@case()
def unshifted_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    exp = (scores(q, k).float() * SCALE).exp()
    return (exp / exp.sum(-1).unsqueeze(-1)).to(q.dtype) @ v


@case()
def log_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.log_softmax(scores(q, k) * SCALE, -1).exp() @ v


@case()
def log_sum_exp(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    raw = scores(q, k) * SCALE
    return (raw - raw.logsumexp(-1, keepdim=True)).exp() @ v


@case()
def late_normalization(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    raw = scores(q, k) * SCALE
    exp = (raw - raw.amax(-1, keepdim=True)).exp()
    return (exp @ v) / exp.sum(-1, keepdim=True)


@case(kv_heads=2)
def late_normalization_grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    grouped = q.unflatten(1, (2, 2))
    raw = torch.einsum("bhgqd,bhkd->bhgqk", grouped, k).float() * SCALE
    exp = (raw - raw.amax(-1, keepdim=True).detach()).exp().where(lower(q), 0.0)
    product = torch.einsum("bhgqk,bhkd->bqhgd", exp.to(v.dtype), v).float()
    return product / exp.sum(-1).permute(0, 3, 1, 2).unsqueeze(-1)


@case()
def subtracted_maximum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    raw = scores(q, k) * SCALE
    return (raw - raw.max(-1, keepdim=True)[0]).softmax(-1) @ v


def sinks(dtype: torch.dtype) -> Tensor:
    return torch.linspace(-1, 2, H).to(dtype)[None, :, None, None]


@case()
def sink_column(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    raw = (scores(q, k) * SCALE).masked_fill(~lower(q), -math.inf)
    return torch.cat((raw, sinks(q.dtype).expand(q.shape[0], -1, q.shape[2], 1)), -1).softmax(-1)[..., :-1] @ v


@case()
def sink_column_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    raw = torch.cat((sinks(q.dtype).expand(q.shape[0], -1, q.shape[2], 1), scores(q, k) * SCALE), -1)
    raw = raw - raw.max(-1, keepdim=True).values
    return F.dropout(raw.softmax(-1, dtype=torch.float32).to(q.dtype)[..., 1:], 0.0, False) @ v


@case()
def sink_in_the_sum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    raw = scores(q, k) * SCALE
    top = raw.amax(-1, keepdim=True)
    exp = (raw - top).exp()
    return (exp / (exp.sum(-1, keepdim=True) + (sinks(q.dtype) - top).exp())) @ v


@case()
def zero_column(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    raw = (scores(q, k) * SCALE).masked_fill(~lower(q).flip(0), -math.inf)
    return F.pad(raw, (1, 0)).softmax(-1)[..., 1:] @ v


@case()
def softmax_plus_one(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    raw = scores(q, k).float() * SCALE
    top = raw.amax(-1, keepdim=True)
    exp = (raw - top).exp()
    return ((exp @ v.float()) / (exp.sum(-1, keepdim=True) + (-top).exp())).to(q.dtype)


@case()
def unshifted_plus_one(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    exp = (scores(q, k).float() * SCALE).exp()
    return (exp / (1 + exp.sum(-1, keepdim=True))).to(q.dtype) @ v


# -- more than one softmax, or more than its product ------------------------------------------------------------------


@case(fuses=2)
def differential(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    (q1, q2), (k1, k2) = q.chunk(2, -1), k.chunk(2, -1)
    return ((scores(q1, k1) * SCALE).softmax(-1) - 0.5 * (scores(q2, k2) * SCALE).softmax(-1)) @ v


@case(fuses=0, code="ATTNC-CONTRACTION")
def talking_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mix = torch.eye(H, dtype=q.dtype) + 0.1
    return torch.einsum("gh,bhqk->bgqk", mix, (scores(q, k) * SCALE).softmax(-1)) @ v


@case(fuses=0, code="ATTNC-WEIGHTS-USED")
def returned_weights(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = (scores(q, k) * SCALE).softmax(-1)
    return weights @ v, weights
