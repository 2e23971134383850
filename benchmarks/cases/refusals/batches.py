"""Statistics and numbers of the batch, or of the sequence, in a token's own sum."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.cases.refusals.net import WIDTH, Net
from benchmarks.cases.refusals.pairs import Pair, pair


def batch_norm(net: Net, x: Tensor) -> Tensor:
    """Normalised as in training: by the mean and variance of the batch."""
    return F.batch_norm(x.transpose(1, 2), None, None, training=True).transpose(1, 2)


def layer_norm(net: Net, x: Tensor) -> Tensor:
    return F.layer_norm(x.transpose(1, 2).transpose(1, 2), (WIDTH,))


def group_norm(net: Net, x: Tensor) -> Tensor:
    """Two groups of features, over all tokens."""
    return F.group_norm(x.transpose(1, 2), 2).transpose(1, 2)


def groups(net: Net, x: Tensor) -> Tensor:
    """Two groups of features, over themselves."""
    return F.layer_norm(x.view(*x.shape[:2], 2, -1), (WIDTH // 2,)).view(x.shape)


PAIRS: list[Pair] = [
    pair(
        "mean of the batch",
        "mean",
        "batch",
        before=(lambda net, x: x - x.mean(0, keepdim=True), lambda net, x: x - x.mean(2, keepdim=True)),
    ),
    pair("batch norm in training", "batch_norm", "batch", before=(batch_norm, layer_norm)),
    pair("group norm over tokens", "group_norm", "later", after=(group_norm, groups)),
    pair(
        "layer norm over tokens",
        "layer_norm",
        "later",
        before=(lambda net, x: F.layer_norm(x, x.shape[1:]), lambda net, x: F.layer_norm(x, x.shape[2:])),
    ),
    pair(
        "layer norm of transposed tokens",
        "layer_norm",
        "later",
        after=(
            lambda net, x: F.layer_norm(x.transpose(1, 2), x.shape[1:2]).transpose(1, 2),
            lambda net, x: F.layer_norm(x.transpose(0, 1), x.shape[2:3]).transpose(0, 1),
        ),
    ),
    pair(
        "over the largest of all",
        "aten.max",
        "batch",
        before=(lambda net, x: x / x.abs().max(), lambda net, x: x / x.abs().amax(2, keepdim=True)),
    ),
    pair(
        "over the norm of all",
        "vector_norm",
        "alone",
        after=(lambda net, x: x / x.norm(), lambda net, x: x / x.norm(dim=2, keepdim=True)),
    ),
    pair(
        "centred and scaled over tokens",
        "var",
        "later",
        before=(lambda net, x: x / x.var(1, keepdim=True).add(1), lambda net, x: x / x.var(2, keepdim=True).add(1)),
    ),
    pair(
        "row of the batch as a number",
        "batch",
        "alone",
        before=(
            lambda net, x: x + torch.arange(x.shape[0])[:, None, None] * 0.1,
            lambda net, x: x + torch.arange(x.shape[1])[None, :, None] * 0.1,
        ),
    ),
    pair(
        "rows of the batch as a number",
        "batch",
        "alone",
        after=(lambda net, x: x / x.shape[0], lambda net, x: x / x.shape[2]),
    ),
    pair(
        "length as a number",
        "length",
        "length",
        after=(lambda net, x: x + 1 / x.shape[1], lambda net, x: x + 1 / x.shape[2]),
    ),
    pair(
        "batch as features",
        "linear",
        "batch",
        after=(
            lambda net, x: x + x.sum(0, keepdim=True) @ net.square,
            lambda net, x: x + x.sum(2, keepdim=True) * net.square[0],
        ),
    ),
]
