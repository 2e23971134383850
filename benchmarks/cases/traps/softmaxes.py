"""Softmaxes written out, and sinks."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.cases.traps.pairs import B, H, Pair, S, lower, scores, square


def exponentials(q: Tensor, k: Tensor) -> Tensor:
    raw = scores(q, k)
    return (raw - raw.amax(-1, keepdim=True)).exp()


def summed(e: Tensor) -> tuple[Tensor, Tensor]:
    return e, e.sum(-1, keepdim=True)


def shifted(q: Tensor, k: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """The scores, and exponentials after the maximum of ``other`` was subtracted."""
    s = scores(q, k)
    return s, (s - other.amax(-1, keepdim=True)).exp()


def columns(q: Tensor, k: Tensor, count: int = 1) -> Tensor:
    """Weights of the keys and of ``count`` sinks after them."""
    sink = torch.linspace(0, 3, H).to(q.dtype)[None, :, None, None].expand(B, H, S, count)
    return torch.cat((scores(q, k), sink), -1).softmax(-1)


PAIRS = [
    Pair(
        "sum over the keys broadcast over the queries",
        lambda q, k, v: (lambda e: (e / e.sum(-1)) @ v[0, 0])(exponentials(q[0, 0], k[0, 0])),
        lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True)) @ v[0, 0])(exponentials(q[0, 0], k[0, 0])),
        code="ATTNC-SOFTMAX-FORM",
    ),
    Pair(
        "exponentials summed over the queries",
        lambda q, k, v: (lambda e: (e / e.sum(-2, keepdim=True)) @ v)(exponentials(q, k)),
        lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True)) @ v)(exponentials(q, k)),
        code="ATTNC-SCORE-CONDITION",
    ),
    Pair(
        "a large number in the denominator",
        lambda q, k, v: (lambda e: (e / (e.sum(-1, keepdim=True) + 1e-2)) @ v)(exponentials(q, k)),
        lambda q, k, v: (lambda e: (e / (e.sum(-1, keepdim=True) + 1e-12)) @ v)(exponentials(q, k)),
        code="ATTNC-SOFTMAX-FORM",
    ),
    Pair(
        "the sum clamped above 1",
        lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True).clamp(min=3.0)) @ v)(exponentials(q, k)),
        lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True).clamp(min=0.5)) @ v)(exponentials(q, k)),
        code="ATTNC-SOFTMAX-FORM",
    ),
    Pair(
        "product divided by another row's sum",
        lambda q, k, v: (lambda e: (e @ v) / e.sum(-1).mT[..., None])(exponentials(q, k)),
        lambda q, k, v: (lambda e: (e @ v) / e.sum(-1)[..., None])(exponentials(q, k)),
        square,
        code="ATTNC-SOFTMAX-FORM",
    ),
    Pair(
        "product divided along the features",
        lambda q, k, v: (lambda e: (e @ v[..., :S]) / e.sum(-1)[:, :, None])(exponentials(q, k)),
        lambda q, k, v: (lambda e: (e @ v[..., :S]) / e.sum(-1)[:, :, :, None])(exponentials(q, k)),
        code="ATTNC-SOFTMAX-FORM",
    ),
    Pair(
        "the sum read elsewhere too",
        lambda q, k, v: (lambda e, z: ((e @ v) / z, z.log()))(*summed(exponentials(q, k))),
        lambda q, k, v: (lambda e, z: ((e @ v) / z, q.cos()))(*summed(exponentials(q, k))),
        code="ATTNC-SOFTMAX-FORM",
    ),
    Pair(
        "the wrong column dropped",
        lambda q, k, v: columns(q, k)[..., 1:] @ v,
        lambda q, k, v: columns(q, k)[..., :-1] @ v,
        code="ATTNC-WEIGHTS-OP",
    ),
    Pair(
        "the sink column kept, for a value of its own",
        lambda q, k, v: columns(q, k) @ torch.cat((v, v[:, :, :1]), -2),
        lambda q, k, v: columns(q, k)[..., :S] @ v,
        code="ATTNC-SCORE-OP",
    ),
    Pair(
        "one added to the shifted sum",
        lambda q, k, v: (lambda e: (e / (e.sum(-1, keepdim=True) + 1)) @ v)(exponentials(q, k)),
        lambda q, k, v: (lambda e: (e / (e.sum(-1, keepdim=True) + 1)) @ v)(scores(q, k).exp()),
        code="ATTNC-SOFTMAX-FORM",
    ),
    Pair(
        "two added to the sum",
        lambda q, k, v: (lambda e: (e / (e.sum(-1, keepdim=True) + 2)) @ v)(scores(q, k).exp()),
        lambda q, k, v: (lambda e: (e / (e.sum(-1, keepdim=True) + 1)) @ v)(scores(q, k).exp()),
    ),
    Pair(
        "one of two columns dropped",
        lambda q, k, v: columns(q, k, 2)[..., :-1] @ torch.cat((v, v[:, :, :1]), -2),
        lambda q, k, v: columns(q, k)[..., :-1] @ v,
        code="ATTNC-WEIGHTS-OP",
    ),
    Pair(
        "the maximum over the queries subtracted",
        lambda q, k, v: (lambda s: (s - s.amax(-2, keepdim=True)).softmax(-1) @ v)(scores(q, k)),
        lambda q, k, v: (lambda s: (s - s.amax(-1, keepdim=True)).softmax(-1) @ v)(scores(q, k)),
        code="ATTNC-SCORE-CONDITION",
    ),
    Pair(
        "the maximum of other scores subtracted",
        lambda q, k, v: (lambda s, e: e / e.sum(-1, keepdim=True) @ v)(*shifted(q, k, scores(q, q) * 0.3)),
        lambda q, k, v: (lambda s, e: e / e.sum(-1, keepdim=True) @ v)(*shifted(q, k, scores(q, k))),
    ),
    Pair(
        "the sum taken before the mask",
        lambda q, k, v: (lambda e: e.masked_fill(~lower(S, S), 0.0) @ v / e.sum(-1, keepdim=True))(exponentials(q, k)),
        lambda q, k, v: (lambda e: e @ v / e.sum(-1, keepdim=True))(exponentials(q, k).masked_fill(~lower(S, S), 0.0)),
    ),
    Pair(
        "the logsumexp of the transposed scores",
        lambda q, k, v: (lambda s: (s - s.logsumexp(-2, keepdim=True)).exp() @ v)(scores(q, k)),
        lambda q, k, v: (lambda s: (s - s.logsumexp(-1, keepdim=True)).exp() @ v)(scores(q, k)),
        code="ATTNC-CONTRACTION",
    ),
]
