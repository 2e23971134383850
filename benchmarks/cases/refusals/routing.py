"""Experts whose choice, room or order depends on other tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.cases.refusals.net import EXPERTS, Net, Part
from benchmarks.cases.refusals.pairs import Pair, pair

CHOSEN = 2


def gates(net: Net, x: Tensor) -> Tensor:
    """What the router gives each expert [B, S, E]."""
    return net.route(x).softmax(-1)


def served(net: Net, x: Tensor, weights: Tensor) -> Tensor:
    """x [B, S, W] plus every expert's result times its weight [B, S, E]."""
    results = (x[:, :, None, None, :] @ net.experts).squeeze(3)
    return x + (results * weights[..., None]).sum(2)


def best(dim: int, count: int = CHOSEN) -> Part:
    """The best weights along a dimension, others 0."""

    def add(net: Net, x: Tensor) -> Tensor:
        weights = gates(net, x)
        values, indices = weights.topk(count, dim=dim)
        return served(net, x, torch.zeros_like(weights).scatter(dim, indices, values))

    return add


def picked(weights: Tensor) -> Tensor:
    """1 for the best expert of each token [B, S, E], else 0."""
    return torch.zeros_like(weights).scatter(2, weights.argmax(2, keepdim=True), 1.0)


def limited(net: Net, x: Tensor) -> Tensor:
    """An expert serves four tokens of the batch; others are dropped."""
    weights = gates(net, x)
    chosen = picked(weights)
    queue = chosen.view(-1, EXPERTS).cumsum(0).view(chosen.shape)
    return served(net, x, weights * chosen * (queue <= 4))


def limited_rows(net: Net, x: Tensor) -> Tensor:
    """An expert serves two tokens of each sequence; others are dropped."""
    weights = gates(net, x)
    chosen = picked(weights)
    queue = chosen.cumsum(1)
    return served(net, x, weights * chosen * (queue <= 2))


def unlimited(net: Net, x: Tensor) -> Tensor:
    weights = gates(net, x)
    chosen = picked(weights)
    queue = chosen.cumsum(2)
    return served(net, x, weights * chosen * (queue <= 2))


def room(net: Net, x: Tensor) -> Tensor:
    """An expert serves a quarter of a sequence: its first tokens."""
    weights = gates(net, x)
    chosen = picked(weights)
    queue = chosen.cumsum(1)
    return served(net, x, weights * chosen * (queue <= x.shape[1] // EXPERTS))


def balanced(net: Net, x: Tensor) -> Tensor:
    """Experts that serve many tokens of the batch are chosen less."""
    weights = gates(net, x)
    load = picked(weights).mean((0, 1))
    return served(net, x, picked(weights - load) * weights)


def biased(net: Net, x: Tensor) -> Tensor:
    """Experts are chosen by their weight and a number of their own."""
    weights = gates(net, x)
    load = net.router.bias
    return served(net, x, picked(weights - load) * weights)


def grouped(slots: int, back: bool) -> Part:
    """Slots sorted by expert: slot i of a token is i of ``CHOSEN``; ``slots`` it is divided by to find the token."""

    def add(net: Net, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[2])
        values, experts = net.route(tokens).softmax(-1).topk(CHOSEN, dim=-1)
        ids, order = experts.reshape(-1).sort(stable=True)
        results = (tokens[order // slots][:, None, :] @ net.experts[ids])[:, 0]
        results = results * values.reshape(-1)[order][:, None]
        where = torch.empty_like(order)
        where[order] = torch.arange(order.shape[0])
        unsorted = results[where if back else order]
        return x + unsorted.view(-1, CHOSEN, x.shape[2]).sum(1).view(x.shape)

    return add


PAIRS: list[Pair] = [
    pair("experts choose tokens", "topk", "later", after=(best(1), best(2))),
    pair("experts choose rows of the batch", "topk", "batch", after=(best(0, 1), best(2, 1))),
    pair(
        "router normalised over tokens",
        "softmax",
        "later",
        after=(
            lambda net, x: served(net, x, net.route(x).softmax(1)),
            lambda net, x: served(net, x, net.route(x).softmax(2)),
        ),
    ),
    pair("experts with little room", "cumsum", "batch", after=(limited, unlimited)),
    pair("experts with little room in a sequence", "cumsum", "state", after=(limited_rows, unlimited)),
    pair("experts with room for a share", "cumsum", "length", after=(room, unlimited)),
    pair("experts balanced over the batch", "mean", "alone", after=(balanced, biased)),
    pair(
        "results left in the order of experts", "index", "batch", after=(grouped(CHOSEN, False), grouped(CHOSEN, True))
    ),
    pair("slots of another token", "index", "batch", after=(grouped(CHOSEN + 1, True), grouped(CHOSEN, True))),
]
