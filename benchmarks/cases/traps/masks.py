"""Which pairs are hidden, and what hides them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.cases.traps.pairs import B, H, Pair, Program, S, attend, low, lower, padded, qkv, scores


def dead(fill: Callable[[torch.dtype], float]) -> tuple[Program, Program]:
    """A row that sees nothing, by this fill, added; and the same program with every row alive."""

    def masked(hidden: slice) -> Program:
        def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keep = lower(S, S).clone()
            keep[hidden] = False
            mask = torch.zeros(S, S, dtype=q.dtype).masked_fill(~keep, fill(q.dtype))
            return attend(q, k, v, mask)

        return run

    return masked(slice(3, 5)), masked(slice(0, 0))


FILLS = {
    "-inf": lambda dtype: -math.inf,
    "finfo.min": lambda dtype: torch.finfo(dtype).min,
    "-1e4": lambda dtype: -1e4,
    "-65504": lambda dtype: -65504.0,
}


def seen(condition: Callable[[Tensor, Tensor], Tensor]) -> Program:
    """Attention over the pairs (query, key) for which a condition on positions holds; others hold a finite fill."""

    def run(q: Tensor, k: Tensor, v: Tensor, *_: Tensor) -> Tensor:
        at = torch.arange(S)
        return scores(q, k).masked_fill(~condition(at[:, None], at[None]), low(q.dtype)).softmax(-1) @ v

    return run


def kept(place: Callable[[Tensor], Tensor]) -> Program:
    """Attention over the keys that a loaded mask keeps, by where it is put among the scores."""
    return lambda q, k, v, keep: scores(q, k).masked_fill(~place(keep), low(q.dtype)).softmax(-1) @ v


def padded_square(dtype: torch.dtype) -> tuple[Tensor, ...]:
    """As many batches as heads, each with padding of its own."""
    return (*qkv(dtype, batch=H), torch.arange(S)[None] < torch.tensor([[12], [9], [5], [7]]))


def loaded(dtype: torch.dtype) -> tuple[Tensor, ...]:
    """A mask [S, S] that is no formula."""
    return (*qkv(dtype), torch.rand(S, S, generator=torch.Generator().manual_seed(5)) < 0.6)


PAIRS = [
    Pair(
        "causal from the bottom right",
        lambda q, k, v: attend(q, k, v, torch.zeros(5, S).masked_fill(~lower(5, S, S - 5), -math.inf).to(q.dtype)),
        lambda q, k, v: attend(q, k, v, torch.zeros(5, S).masked_fill(~lower(5, S), -math.inf).to(q.dtype)),
        lambda dtype: qkv(dtype, 5),
    ),
    Pair(
        "padding on the query axis",
        lambda q, k, v, keep: scores(q, k).masked_fill(~keep[:, None, :, None], low(q.dtype)).softmax(-1) @ v,
        lambda q, k, v, keep: scores(q, k).masked_fill(~keep[:, None, None, :], low(q.dtype)).softmax(-1) @ v,
        padded,
    ),
    Pair(
        "padding of the other batch", kept(lambda x: x.flip(0)[:, None, None]), kept(lambda x: x[:, None, None]), padded
    ),
    Pair(
        "padding of heads",
        kept(lambda x: x[None, :, None]),
        kept(lambda x: x[:, None, None]),
        padded_square,
    ),
    Pair("a loaded mask transposed", kept(lambda x: x.mT), kept(lambda x: x), loaded),
    Pair("a key before the query", seen(lambda q, k: k < q), seen(lambda q, k: k <= q)),
    Pair("a diagonal too many", seen(lambda q, k: k <= q + 1), seen(lambda q, k: k <= q)),
    Pair("a window on both sides", seen(lambda q, k: (q - k).abs() < 3), seen(lambda q, k: (q - k < 3) & (k <= q))),
    Pair("chunks and all before", seen(lambda q, k: k // 5 <= q // 5), seen(lambda q, k: k // 5 == q // 5)),
    Pair(
        "a remainder towards zero",
        seen(lambda q, k: (q - k).fmod(3) == 1),
        seen(lambda q, k: (q - k).remainder(3) == 1),
    ),
    Pair(
        "a quotient towards zero",
        seen(lambda q, k: torch.div(q - k, 4, rounding_mode="trunc") == 0),
        seen(lambda q, k: torch.div(q - k, 4, rounding_mode="floor") == 0),
    ),
    Pair(
        "branches swapped",
        lambda q, k, v: torch.where(lower(S, S, -1), low(q.dtype), scores(q, k)).softmax(-1) @ v,
        lambda q, k, v: torch.where(lower(S, S, -1), scores(q, k), low(q.dtype)).softmax(-1) @ v,
    ),
    Pair(
        "weights masked and not normalised again",
        lambda q, k, v: scores(q, k).softmax(-1).masked_fill(~lower(S, S), 0.0) @ v,
        lambda q, k, v: scores(q, k).masked_fill(~lower(S, S), -math.inf).softmax(-1) @ v,
    ),
    Pair(
        "hidden scores set to 0",
        lambda q, k, v: (scores(q, k) * lower(S, S)).softmax(-1) @ v,
        lambda q, k, v: torch.where(lower(S, S), scores(q, k), -math.inf).softmax(-1) @ v,
    ),
    Pair(
        "a mask of ones and zeros added by a call",
        lambda q, k, v, keep: torch.nn.functional.scaled_dot_product_attention(q, k, v, keep.to(q.dtype)),
        lambda q, k, v, keep: torch.nn.functional.scaled_dot_product_attention(q, k, v, keep),
        loaded,
    ),
    *(Pair(f"dead rows by {label}", *dead(fill)) for label, fill in FILLS.items()),
    Pair(
        "two masks whose fills add up",
        lambda q, k, v, keep: attend(
            q,
            k,
            v,
            torch.zeros(B, 1, S, S).masked_fill(~lower(S, S), torch.finfo(q.dtype).min).to(q.dtype)
            + torch.zeros(B, 1, 1, S).masked_fill(~keep[:, None, None].flip(-1), torch.finfo(q.dtype).min).to(q.dtype),
        ),
        lambda q, k, v, keep: attend(
            q, k, v, torch.zeros(B, 1, S, S).masked_fill(~lower(S, S), torch.finfo(q.dtype).min).to(q.dtype)
        ),
        padded,
    ),
    Pair(
        "a bias that is no mask",
        lambda q, k, v: attend(q, k, v, torch.zeros(S, S, dtype=q.dtype).masked_fill(~lower(S, S), -5.0)),
        lambda q, k, v: attend(q, k, v, torch.zeros(S, S, dtype=q.dtype).masked_fill(~lower(S, S), -1e4)),
    ),
    Pair(
        "a mask that depends on the scores",
        lambda q, k, v: (lambda s: s.masked_fill(s < 0, -math.inf).softmax(-1) @ v)(scores(q, k)),
        lambda q, k, v: (lambda s: s.masked_fill(q[..., :1] > 9, -math.inf).softmax(-1) @ v)(scores(q, k)),
        code="ATTNC-SCORE-CONDITION",
    ),
]
