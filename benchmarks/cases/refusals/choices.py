"""Rows taken, moved and counted by what they hold, and random numbers."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.cases.refusals.net import WIDTH, Net, embed
from benchmarks.cases.refusals.pairs import Pair, pair


def gathered(net: Net, ids: Tensor) -> Tensor:
    """Each token with the one its id points at."""
    x = embed(net, ids)
    return x + x.gather(1, (ids % ids.shape[1])[:, :, None].expand(-1, -1, WIDTH))


def read(net: Net, ids: Tensor) -> Tensor:
    """Each feature with the one its token's id points at."""
    x = embed(net, ids)
    return x + x.gather(2, (ids % WIDTH)[:, :, None].expand(-1, -1, WIDTH))


def earlier(net: Net, ids: Tensor) -> Tensor:
    """Each token with an earlier one, as far back as its id says."""
    x = embed(net, ids)
    source = (torch.arange(ids.shape[1]) - ids % 5).clamp(min=0)
    return x + x.gather(1, source[:, :, None].expand(-1, -1, WIDTH))


def scattered(net: Net, ids: Tensor) -> Tensor:
    """Each token is added to the one its id points at."""
    x = embed(net, ids)
    return x.scatter_add(1, (ids % ids.shape[1])[:, :, None].expand(-1, -1, WIDTH), x.tanh())


def spread(net: Net, ids: Tensor) -> Tensor:
    """Each feature is added to the one its token's id points at."""
    x = embed(net, ids)
    return x.scatter_add(2, (ids % WIDTH)[:, :, None].expand(-1, -1, WIDTH), x.tanh())


def centred(net: Net, ids: Tensor) -> Tensor:
    """Some tokens, found by ``nonzero``, without their mean."""
    x = embed(net, ids)
    rows = x.reshape(-1, WIDTH)
    some = (ids.reshape(-1) % 2).nonzero()[:, 0]
    return x - rows[some].sum(0) / 8


def halved(net: Net, ids: Tensor) -> Tensor:
    """Some tokens, found by ``where``, without half of themselves."""
    x = embed(net, ids)
    return x - torch.where((ids % 2)[:, :, None] != 0, x, 0.0) / 2


def ordered(net: Net, x: Tensor) -> Tensor:
    """Tokens in the order of a score."""
    order = (x @ net.prefix[0]).argsort(1)
    return x + x.gather(1, order[:, :, None].expand(-1, -1, WIDTH))


def ordered_features(net: Net, x: Tensor) -> Tensor:
    """Features in the order of a score."""
    order = (x * net.prefix[0]).argsort(2)
    return x + x.gather(2, order)


PAIRS: list[Pair] = [
    pair("tokens taken by the data", "gather", "later", embed=(gathered, read)),
    pair("earlier tokens taken by the data", "gather", "state", embed=(earlier, read)),
    pair("tokens scattered by the data", "scatter", "later", embed=(scattered, spread)),
    pair("tokens ordered by the data", "sort", "later", before=(ordered, ordered_features)),
    pair("tokens found by nonzero", "nonzero", "batch", embed=(centred, halved)),
    pair(
        "dropout in training",
        "dropout",
        "repeat",
        after=(
            lambda net, x: x + F.dropout(x, 0.3, training=True),
            lambda net, x: x + F.dropout(x, 0.3, training=False),
        ),
    ),
    pair(
        "noise on the stream",
        "rand",
        "repeat",
        before=(lambda net, x: x + torch.randn_like(x) * 0.1, lambda net, x: x + torch.ones_like(x) * 0.1),
    ),
]
