"""Something said of the whole sequence, given to each of its tokens."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.cases.refusals.net import VOCABULARY, WIDTH, Net, embed
from benchmarks.cases.refusals.pairs import Pair, pair


def picked(net: Net, x: Tensor) -> Tensor:
    """The token where the first feature is largest."""
    best = x[:, :, 0].argmax(1)
    return x + x[torch.arange(x.shape[0]), best][:, None]


def chosen(net: Net, x: Tensor) -> Tensor:
    """The row of a table by the feature that is largest."""
    best = x.argmax(2)
    return x + net.square[best]


def pooled(net: Net, x: Tensor) -> Tensor:
    weights = (x @ net.prefix[0]).softmax(1)
    return x + torch.einsum("bs,bsw->bw", weights, x)[:, None]


def gated(net: Net, x: Tensor) -> Tensor:
    weights = (x * net.prefix[0]).softmax(2)
    return x + torch.einsum("bsw,bsw->bs", weights, x)[:, :, None]


def frequency(net: Net, ids: Tensor) -> Tensor:
    """How often each token occurs in its sequence."""
    counts = torch.zeros(ids.shape[0], VOCABULARY, dtype=torch.int64).scatter_add(1, ids, torch.ones_like(ids))
    return embed(net, ids) + counts.gather(1, ids)[:, :, None]


def known(net: Net, ids: Tensor) -> Tensor:
    counts = torch.arange(VOCABULARY).remainder(3)
    return embed(net, ids) + counts[ids][:, :, None]


def twice(net: Net, ids: Tensor) -> Tensor:
    """How many tokens of the sequence are the same."""
    return embed(net, ids) + (ids[:, :, None] == ids[:, None, :]).sum(-1, keepdim=True)


def listed(net: Net, ids: Tensor) -> Tensor:
    """How many tokens of a list are the same."""
    listed = torch.arange(0, VOCABULARY, 3)
    return embed(net, ids) + (ids[:, :, None] == listed[None, None, :]).sum(-1, keepdim=True)


PAIRS: list[Pair] = [
    pair(
        "mean over tokens",
        "mean",
        "later",
        before=(lambda net, x: x + x.mean(1, keepdim=True), lambda net, x: x + x.mean(2, keepdim=True)),
    ),
    pair(
        "largest over tokens",
        "amax",
        "later",
        before=(lambda net, x: x + x.amax(1, keepdim=True), lambda net, x: x + x.amax(2, keepdim=True)),
    ),
    pair(
        "logsumexp over tokens",
        "logsumexp",
        "later",
        after=(lambda net, x: x - x.logsumexp(1, keepdim=True), lambda net, x: x - x.logsumexp(2, keepdim=True)),
    ),
    pair(
        "mean of the sequence after attention",
        "mean",
        "later",
        after=(
            lambda net, x: x + F.linear(x.mean(1, keepdim=True), net.square),
            lambda net, x: x + F.linear(x, net.square).mean(2, keepdim=True),
        ),
    ),
    pair(
        "last token for all",
        "slice",
        "later",
        before=(lambda net, x: x + x[:, -1:], lambda net, x: x + x[..., -1:]),
    ),
    pair(
        "last token selected",
        "select",
        "later",
        after=(lambda net, x: x + x[:, -1][:, None], lambda net, x: x + x[..., -1][..., None]),
    ),
    pair("token selected by the data", "argmax", "later", before=(picked, chosen)),
    pair("pooled with weights of its own", "softmax", "later", before=(pooled, gated)),
    pair(
        "whether a token is large",
        "any",
        "later",
        before=(
            lambda net, x: x + (x > 2).any(1, keepdim=True),
            lambda net, x: x + (x > 2).any(2, keepdim=True),
        ),
    ),
    pair("how often a token occurs", "scatter", "later", embed=(frequency, known)),
    pair("how many tokens are the same", "eq", "later", embed=(twice, listed)),
    pair(
        "tokens resized to four and back",
        "pool",
        "later",
        before=(
            lambda net, x: x + F.interpolate(F.adaptive_avg_pool1d(x.transpose(1, 2), 4), x.shape[1]).transpose(1, 2),
            lambda net, x: x + x.view(*x.shape[:2], 4, -1).mean(-1).repeat_interleave(WIDTH // 4, -1),
        ),
    ),
]
