"""Positions that count from the end, are a share of the length, or depend on data or batch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.cases.refusals.net import LIMIT, WIDTH, Net, Part
from benchmarks.cases.refusals.pairs import Pair, pair


def at(ids: Tensor) -> Tensor:
    return torch.arange(ids.shape[1])


def angles(positions: Tensor, base: float | int) -> Tensor:
    """[S, W] of positions [S]."""
    return positions[:, None] * base ** (-torch.arange(WIDTH) / WIDTH)


def turned(x: Tensor, angle: Tensor) -> Tensor:
    """Rotary embedding of x [B, S, W] by angles [S, W]: pairs of neighbours in halves."""
    low, high = x.chunk(2, -1)
    return x * angle.cos() + torch.cat((-high, low), -1) * angle.sin()


def stretched(net: Net, x: Tensor) -> Tensor:
    """The base of the rotation grows with the length."""
    return turned(x, angles(torch.arange(x.shape[1]), 10.0 * x.shape[1]))


def rotated(net: Net, x: Tensor) -> Tensor:
    return turned(x, angles(torch.arange(x.shape[1]), 10.0 * x.shape[2]))


def resized(net: Net, ids: Tensor) -> Tensor:
    """A table of eight positions, stretched to the length."""
    table = net.places.weight[:8].transpose(0, 1)[None]
    return net.read(ids) + F.interpolate(table, ids.shape[1], mode="linear").transpose(1, 2)


def cut(net: Net, ids: Tensor) -> Tensor:
    table = net.places.weight[None]
    return net.read(ids) + table[:, : ids.shape[1]]


def cut_late(net: Net, ids: Tensor) -> Tensor:
    """The last rows of the table."""
    table = net.places.weight[None]
    return net.read(ids) + table[:, LIMIT - ids.shape[1] :]


def placed(where: Part) -> Part:
    """Tokens with the table's rows at the positions [..., S] that ``where`` says of ids."""
    return lambda net, ids: net.read(ids) + net.place(where(net, ids))


def valued(where: Part) -> Part:
    """Tokens plus the waves of positions [S] that ``where`` says of ids."""
    return lambda net, ids: net.read(ids) + (where(net, ids)[:, None] * torch.arange(1, WIDTH + 1) * 0.3).sin()


def prefixed(net: Net, x: Tensor) -> Tensor:
    """Three learned tokens come first, and as many of the last go."""
    longer = torch.cat((net.prefix.expand(x.shape[0], -1, -1), x), 1)
    return longer[:, : x.shape[1]]


def widened(net: Net, x: Tensor) -> Tensor:
    """Three learned features come first, and as many of the last go."""
    longer = torch.cat((net.prefix[:, 0].expand(*x.shape[:2], -1), x), 2)
    return longer[:, :, : x.shape[2]]


PAIRS: list[Pair] = [
    pair(
        "positions in reverse",
        "flip",
        "length",
        embed=(placed(lambda net, ids: at(ids).flip(0)), placed(lambda net, ids: at(ids))),
    ),
    pair(
        "positions from the end",
        "length",
        "length",
        embed=(placed(lambda net, ids: ids.shape[1] - 1 - at(ids)), placed(lambda net, ids: LIMIT - 1 - at(ids))),
    ),
    pair(
        "positions as a share of the length",
        "length",
        "length",
        embed=(valued(lambda net, ids: at(ids) / ids.shape[1]), valued(lambda net, ids: at(ids) / LIMIT)),
    ),
    pair(
        "positions over the last",
        "amax",
        "length",
        embed=(valued(lambda net, ids: at(ids) / at(ids).amax()), valued(lambda net, ids: at(ids) * 0.1)),
    ),
    pair(
        "positions that count some tokens",
        "cumsum",
        "state",
        embed=(
            placed(lambda net, ids: (ids % 3 != 0).long().cumsum(1)),
            placed(lambda net, ids: torch.ones_like(ids).cumsum(1)),
        ),
    ),
    pair(
        "positions moved by some tokens",
        "sum",
        "later",
        embed=(
            placed(lambda net, ids: at(ids) + (ids % 3 == 0).sum(1, keepdim=True)),
            placed(lambda net, ids: at(ids) + (ids % 3 == 0)),
        ),
    ),
    pair(
        "positions by row of the batch",
        "batch",
        "alone",
        embed=(
            placed(lambda net, ids: at(ids) + torch.arange(ids.shape[0])[:, None]),
            placed(lambda net, ids: at(ids) + torch.zeros(ids.shape[0], dtype=torch.int64)[:, None]),
        ),
    ),
    pair("table resized", "upsample", "length", embed=(resized, cut)),
    pair("table from its end", "slice", "length", embed=(cut_late, cut)),
    pair("rotation that knows the length", "length", "length", before=(stretched, rotated)),
    pair("learned tokens first", "cat", "state", before=(prefixed, widened)),
]
