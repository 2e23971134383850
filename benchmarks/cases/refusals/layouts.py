"""Views that put tokens where batch, heads or other tokens belong."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.cases.refusals.net import FEATURES, HEADS, WIDTH, Net
from benchmarks.cases.refusals.net import embed as own
from benchmarks.cases.refusals.net import split as apart
from benchmarks.cases.refusals.pairs import Pair, pair


def viewed(net: Net, x: Tensor) -> Tensor:
    """Heads and tokens swapped by a view instead of a transposition."""
    return x.flatten(1).view(x.shape[0], HEADS, x.shape[1], FEATURES)


def unmerged(net: Net, x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], x.shape[2], WIDTH)


def merged(net: Net, x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], WIDTH)


def partners(size: int) -> Tensor:
    """1, 0, 3, 2, … [size]: the other one of a pair; the last of an odd number is its own."""
    at = torch.arange(size)
    return (at + 1 - at % 2 * 2).clamp(max=size - 1)


def one_sequence(net: Net, ids: Tensor) -> Tensor:
    """The batch as one sequence, position after position."""
    return own(net, ids.reshape(1, -1)).view(*ids.shape, WIDTH)


def blended(net: Net, x: Tensor) -> Tensor:
    """Two copies of the batch, one after the other, read as copies of a row."""
    return x.repeat(2, 1, 1).view(x.shape[0], 2, x.shape[1], WIDTH).sum(1)


def doubled(net: Net, x: Tensor) -> Tensor:
    return x.repeat(2, 1, 1).view(2, x.shape[0], x.shape[1], WIDTH).sum(0)


PAIRS: list[Pair] = [
    pair(
        "batch and tokens transposed, then viewed",
        "view",
        "batch",
        before=(
            lambda net, x: x + x.transpose(0, 1).reshape(x.shape),
            lambda net, x: x + x.transpose(0, 1).reshape(x.shape[1], x.shape[0], WIDTH).transpose(0, 1),
        ),
    ),
    pair(
        "features and tokens transposed, then viewed",
        "view",
        "later",
        least=WIDTH + 1,
        after=(
            lambda net, x: x + x.transpose(1, 2).reshape(x.shape),
            lambda net, x: x + x.view(*x.shape[:2], HEADS, -1).transpose(2, 3).reshape(x.shape),
        ),
    ),
    pair("heads split by a view", "view", "later", least=3, split=(viewed, apart)),
    pair("heads merged without transposing", "view", "later", least=3, merge=(unmerged, merged)),
    pair(
        "tokens merged in pairs",
        "index",
        "later",
        before=(
            lambda net, x: x + x[:, partners(x.shape[1])],
            lambda net, x: x + x[:, :, partners(x.shape[2])],
        ),
    ),
    pair("batch as one sequence", "view", "alone", embed=(one_sequence, own)),
    pair("copies of rows mixed up", "view", "batch", before=(blended, doubled)),
    pair("tokens in reverse", "flip", "later", before=(lambda net, x: x + x.flip(1), lambda net, x: x + x.flip(2))),
    pair("batch in reverse", "flip", "batch", before=(lambda net, x: x + x.flip(0), lambda net, x: x + x.flip(2))),
    pair(
        "tokens sorted",
        "sort",
        "later",
        before=(lambda net, x: x + x.sort(1).values, lambda net, x: x + x.sort(2).values),
    ),
]
