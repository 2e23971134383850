"""Masks through which a row sees more than the keys before it, or that change with the length."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.cases.refusals.net import FILL, HEADS, Net, Part, grid, hide
from benchmarks.cases.refusals.pairs import Pair, pair

WINDOW = 4


def seen(condition: Callable[[Tensor, Tensor], Tensor]) -> Part:
    """The keys for which a condition on positions holds; it takes the query's [S, 1] and the key's [1, S]."""
    return lambda net, scores: hide(net, scores, condition(*grid(scores)))


def sized(condition: Callable[[Tensor, Tensor, int], Tensor]) -> Part:
    """The same with a condition that also takes the length."""
    return lambda net, scores: hide(net, scores, condition(*grid(scores), scores.shape[-1]))


def heads() -> Tensor:
    return torch.arange(HEADS)[:, None, None]


def rows(scores: Tensor) -> Tensor:
    return torch.arange(scores.shape[0])[:, None, None, None]


def of_rows(net: Net, scores: Tensor) -> Tensor:
    q, k = grid(scores)
    return hide(net, scores, (k <= q) & (q - k <= 2 + rows(scores)))


def of_heads(net: Net, scores: Tensor) -> Tensor:
    q, k = grid(scores)
    return hide(net, scores, (k <= q) & (q - k <= 2 + heads()))


def lower(offset: int) -> Part:
    def mask(net: Net, scores: Tensor) -> Tensor:
        length = scores.shape[-1]
        return hide(net, scores, torch.ones(length, length, dtype=torch.bool).tril(offset))

    return mask


def filled(fill: float) -> Part:
    def mask(net: Net, scores: Tensor) -> Tensor:
        q, k = grid(scores)
        return hide(net, scores, k <= q, fill)

    return mask


PAIRS: list[Pair] = [
    pair("bidirectional", "mask", "later", mask=(seen(lambda q, k: k >= 0), seen(lambda q, k: k <= q))),
    pair(
        "prefix-LM",
        "mask",
        "later",
        mask=(
            seen(lambda q, k: ((k <= q) & (k > q - WINDOW)) | (k < 6)),
            seen(lambda q, k: (k <= q) & ((k > q - WINDOW) | (k < 6))),
        ),
    ),
    pair(
        "first half is a prefix",
        "mask",
        "length",
        mask=(sized(lambda q, k, s: (k <= q) | (k < s // 2)), sized(lambda q, k, s: (k <= q) | (k < 1))),
    ),
    pair(
        "last keys of the sequence",
        "mask",
        "length",
        mask=(
            sized(lambda q, k, s: (k <= q) & ((k >= s - WINDOW) | (k == q))),
            sized(lambda q, k, s: (k <= q) & ((k >= q - WINDOW) | (k == q))),
        ),
    ),
    pair(
        "window of half the length",
        "mask",
        "length",
        mask=(sized(lambda q, k, s: (k <= q) & (k > q - s // 2)), sized(lambda q, k, s: (k <= q) & (k > q - WINDOW))),
    ),
    pair("anti-causal", "mask", "later", mask=(seen(lambda q, k: k >= q), seen(lambda q, k: k <= q))),
    pair("one key ahead", "mask", "later", mask=(seen(lambda q, k: k <= q + 1), seen(lambda q, k: k < q + 1))),
    pair(
        "blocks with look-ahead",
        "mask",
        "later",
        mask=(
            seen(lambda q, k: k // WINDOW == q // WINDOW),
            seen(lambda q, k: (k // WINDOW == q // WINDOW) & (k <= q)),
        ),
    ),
    pair(
        "blocks up to the query's",
        "mask",
        "later",
        mask=(
            seen(lambda q, k: k // WINDOW <= q // WINDOW),
            seen(lambda q, k: (k // WINDOW < q // WINDOW) | (k == q)),
        ),
    ),
    pair(
        "window on both sides",
        "mask",
        "later",
        mask=(seen(lambda q, k: (q - k).abs() < WINDOW), seen(lambda q, k: (k <= q) & (q - k < WINDOW))),
    ),
    pair("triangle one too high", "mask", "later", mask=(lower(1), lower(0))),
    pair("first row sees nothing", "mask", "later", mask=(seen(lambda q, k: k < q), seen(lambda q, k: k <= q))),
    pair("fill that only weakens", "mask", "later", mask=(filled(-2.0), filled(FILL))),
    pair(
        "one head sees all",
        "mask",
        "later",
        mask=(
            seen(lambda q, k: (k <= q) | (heads() == 0)),
            seen(lambda q, k: (k <= q) & ((q - k < WINDOW) | (heads() == 0))),
        ),
    ),
    pair("window by row of the batch", "batch", "alone", mask=(of_rows, of_heads)),
    pair(
        "mask transposed",
        "mask",
        "later",
        mask=(seen(lambda q, k: (k <= q).transpose(0, 1)), seen(lambda q, k: (k >= q).transpose(0, 1))),
    ),
]
