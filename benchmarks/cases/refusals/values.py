"""Weights and values that meet in other ways than each query with its own keys."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.cases.refusals.net import Net
from benchmarks.cases.refusals.pairs import Pair, pair


def merged(net: Net, x: Tensor) -> Tensor:
    """[B, H, S, D] to [B, S, W]."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


PAIRS: list[Pair] = [
    pair(
        "weights transposed",
        "transpose",
        "later",
        mix=(lambda net, w, v: w.transpose(-2, -1) @ v, lambda net, w, v: w @ v),
    ),
    pair("keys of another row", "flip", "batch", key=(lambda net, k: k.flip(0), lambda net, k: k.flip(1))),
    pair("values of another row", "roll", "batch", value=(lambda net, v: v.roll(1, 0), lambda net, v: v.roll(1, 1))),
    pair("values of another token", "roll", "later", value=(lambda net, v: v.roll(1, 2), lambda net, v: v.roll(1, 3))),
    pair("keys in reverse", "flip", "later", key=(lambda net, k: k.flip(2), lambda net, k: k.flip(3))),
    pair("queries sorted", "sort", "later", query=(lambda net, q: q.sort(2).values, lambda net, q: q.sort(3).values)),
    pair(
        "result averaged over tokens",
        "mean",
        "later",
        merge=(
            lambda net, x: merged(net, x - x.mean(2, keepdim=True)),
            lambda net, x: merged(net, x - x.mean(3, keepdim=True)),
        ),
    ),
    pair(
        "values mixed along tokens",
        "cumsum",
        "state",
        value=(lambda net, v: v.cumsum(2), lambda net, v: v.cumsum(3)),
    ),
    pair(
        "attention over the batch",
        "einsum",
        "batch",
        before=(
            lambda net, x: x + torch.einsum("bsv,csv,csw->bsw", x, x, x).tanh(),
            lambda net, x: x + torch.einsum("bsv,bsv,bsw->bsw", x, x, x).tanh(),
        ),
    ),
    pair(
        "similarity to the batch",
        "einsum",
        "batch",
        before=(
            lambda net, x: x + torch.einsum("bsv,csw->bsvw", x, x).mean(-1),
            lambda net, x: x + torch.einsum("bsv,bsw->bsvw", x, x).mean(-1),
        ),
    ),
    pair(
        "contraction of tokens",
        "einsum",
        "later",
        before=(
            lambda net, x: x + torch.einsum("bsv,btv,btw->bsw", x, x, x).tanh(),
            lambda net, x: x + torch.einsum("bsv,bsv,bsw->bsw", x, x, x).tanh(),
        ),
    ),
]
