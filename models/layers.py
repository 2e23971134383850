"""The parts the reference models share, written the way a textbook writes them.

Nothing here knows of attnc: attention is two matmuls around a softmax over the whole score matrix, its mask a boolean
tensor compared together in the graph. Axis letters: B batch, S query length, T key length, H query heads, G key/value
heads, D features of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, scale: float, bias: Tensor | None = None) -> Tensor:
    """Softmax attention.

    q [B, H, S, D], k and v [B, H, T, D], one float dtype; ``visible`` bool, broadcastable to [B, H, S, T], true where a
    query may see a key (None: everywhere); ``bias`` broadcastable to [B, H, S, T], added to the scaled scores. Returns
    [B, H, S, D] in q's dtype; the softmax is in float32.
    """
    scores = torch.matmul(q, k.transpose(-2, -1)) * scale
    if bias is not None:
        scores = scores + bias
    if visible is not None:
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(weights, v)


def causal_mask(length: int, device: torch.device, window: int | None = None) -> Tensor:
    """Bool [1, 1, S, S]: key k is visible to query q where k <= q, and with a ``window`` where also k > q - window."""
    positions = torch.arange(length, device=device)
    query, key = positions[:, None], positions[None, :]
    visible = key <= query
    if window is not None:
        visible = visible & (key > query - window)
    return visible[None, None]


def padding_mask(attention_mask: Tensor) -> Tensor:
    """Bool [B, 1, 1, T] from ``attention_mask`` [B, T] (any integer or bool dtype; nonzero marks a real token)."""
    return attention_mask[:, None, None, :] != 0


def decoder_mask(length: int, device: torch.device, window: int | None, attention_mask: Tensor | None) -> Tensor:
    """Bool, broadcastable to [B, 1, S, S]: causal, within the window where there is one, and not padding."""
    visible = causal_mask(length, device, window)
    return visible if attention_mask is None else visible & padding_mask(attention_mask)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, S, heads·D] to [B, heads, S, D]."""
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[B, H, S, D] to [B, S, H·D]."""
    batch, heads, length, features = x.shape
    return x.transpose(1, 2).reshape(batch, length, heads * features)


def repeat_kv(x: Tensor, groups: int) -> Tensor:
    """[B, G, T, D] to [B, G·groups, T, D]: each key/value head serves ``groups`` neighbouring query heads."""
    if groups == 1:
        return x
    batch, heads, length, features = x.shape
    return x[:, :, None].expand(batch, heads, groups, length, features).reshape(batch, -1, length, features)


def rope_table(positions: Tensor, features: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines [S, D] in ``dtype`` for positions int64 [S]; pair i turns by position · theta^(-2i/D).

    The angles are in float32 whatever ``dtype`` is: bfloat16 can't tell position 1024 from 1027.
    """
    exponents = torch.arange(0, features, 2, dtype=torch.float32, device=positions.device) / features
    angles = positions[:, None].to(torch.float32) * theta**-exponents
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x [B, H, S, D] by ``cos`` and ``sin`` [S, D]; the pairs are (i, i + D/2)."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def sinusoids(length: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Sines, then cosines [S, width] of position · 10000^(-2i/width); the angles are in float32."""
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device=device) / width
    positions = torch.arange(length, dtype=torch.float32, device=device)
    angles = positions[:, None] * 10000.0**-exponents
    return torch.cat((angles.sin(), angles.cos()), dim=-1).to(dtype)


class MultiHead(nn.Module):
    """Multi-head attention of a sequence to itself or to another one, with a bias on every projection."""

    def __init__(self, width: int, heads: int, source_width: int | None = None) -> None:
        """``source_width``: features of the other sequence; None: as many as the first has."""
        super().__init__()
        source_width = width if source_width is None else source_width
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(source_width, width)
        self.v = nn.Linear(source_width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, visible: Tensor | None = None, source: Tensor | None = None) -> Tensor:
        """x [B, S, width] attends to ``source`` [B, T, source_width], by default x itself; returns [B, S, width].

        ``visible`` is bool, broadcastable to [B, 1, S, T]; None: everything is.
        """
        source = x if source is None else source
        q, k, v = (split_heads(y, self.heads) for y in (self.q(x), self.k(source), self.v(source)))
        output: Tensor = self.out(merge_heads(attend(q, k, v, visible, self.scale)))
        return output


class FeedForward(nn.Module):
    """Two matrices around an activation."""

    def __init__(self, width: int, hidden: int, activation: Callable[[Tensor], Tensor], bias: bool = True) -> None:
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(width, hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] to the same shape."""
        output: Tensor = self.down(self.activation(self.up(x)))
        return output


class RMSNorm(nn.Module):
    """x / rms(x) · weight over the last axis, the mean square in float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] to the same shape and dtype."""
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def seeded(model: M, seed: int = 0) -> M:
    """Fill ``model`` with reproducible weights and put it in eval mode; returns it.

    Matrices get standard deviation 1/√fan_in, which keeps activations and scores near unit variance: attention is then
    far from uniform, so that a wrong mask or head map shows.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0.0, parameter[0].numel() ** -0.5, generator=generator)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.1, generator=generator)
    return model.eval()


def token_inputs(vocab_size: int, batch: int, length: int) -> dict[str, Tensor]:
    """input_ids int64 [B, S] and attention_mask int64 [B, S]; row r ends in r padding columns (a token stays)."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, vocab_size, (batch, length), generator=generator)
    ends = (length - torch.arange(batch)).clamp(min=1)
    return {"input_ids": ids, "attention_mask": (torch.arange(length) < ends[:, None]).to(torch.int64)}


def pair_inputs(vocab_size: int, batch: int, length: int) -> dict[str, Tensor]:
    """:func:`token_inputs` for an encoder, and decoder_input_ids int64 [B, S]."""
    inputs = token_inputs(vocab_size, batch, length)
    return {**inputs, "decoder_input_ids": inputs["input_ids"].flip(0, 1)}
