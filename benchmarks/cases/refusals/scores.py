"""Scores and weights that depend on the length, on other queries or on keys not seen."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.cases.refusals.net import FEATURES, Net, grid
from benchmarks.cases.refusals.pairs import Pair, pair


def steps(x: Tensor) -> Tensor:
    """1, 2, … S [S, 1] for x [..., S, D]."""
    return torch.arange(1, x.shape[-2] + 1)[:, None]


def from_end(scores: Tensor) -> Tensor:
    """How far keys are from the end [1, S]: less than 1. In its first power that is a shift of the row."""
    _, k = grid(scores)
    return k - scores.shape[-1] + 1


def weighted_keys(net: Net, scores: Tensor) -> Tensor:
    """A bias by key that says how strong a key's own score is among all keys."""
    own = scores.diagonal(dim1=-2, dim2=-1)
    return scores + own.softmax(-1)[:, :, None, :]


def distant_keys(net: Net, scores: Tensor) -> Tensor:
    q, k = grid(scores)
    return scores + net.slopes * (k - q)


PAIRS: list[Pair] = [
    pair(
        "scale by the log of the length",
        "length",
        "length",
        query=(lambda net, q: q * torch.full((), q.shape[2]).log(), lambda net, q: q * steps(q).log()),
    ),
    pair(
        "scale by the log of the last position",
        "slice",
        "length",
        query=(lambda net, q: q * steps(q)[-1:].log(), lambda net, q: q * steps(q).log()),
    ),
    pair(
        "scale by one over the length",
        "length",
        "length",
        score=(lambda net, s: s * (4 / s.shape[-1]), lambda net, s: s * (4 / FEATURES)),
    ),
    pair(
        "values divided by the length",
        "length",
        "length",
        value=(lambda net, v: v / v.shape[2], lambda net, v: v / v.shape[3]),
    ),
    pair(
        "softmax over queries",
        "softmax",
        "later",
        weigh=(lambda net, s: s.softmax(-2), lambda net, s: s.softmax(-1)),
    ),
    pair("softmax over heads", "softmax", "later", weigh=(lambda net, s: s.softmax(1), lambda net, s: s.softmax(3))),
    pair(
        "softmax over the batch", "softmax", "batch", weigh=(lambda net, s: s.softmax(0), lambda net, s: s.softmax(3))
    ),
    pair(
        "query over the largest of all",
        "amax",
        "alone",
        query=(lambda net, q: q / q.abs().amax(), lambda net, q: q / q.abs().amax(-1, keepdim=True)),
    ),
    pair(
        "values centred over tokens",
        "mean",
        "length",
        value=(lambda net, v: v - v.mean(2, keepdim=True), lambda net, v: v - v.mean(3, keepdim=True)),
    ),
    pair(
        "scores over their norm",
        "sum",
        "later",
        score=(lambda net, s: s / s.square().sum(-1, keepdim=True).sqrt(), lambda net, s: s / s.abs().add(1)),
    ),
    pair(
        "scores blended with the next key's",
        "roll",
        "later",
        score=(lambda net, s: s + s.roll(-1, -1), lambda net, s: s + s.tanh()),
    ),
    pair(
        "scores averaged over keys nearby",
        "pool",
        "later",
        score=(
            lambda net, s: F.avg_pool2d(s, (1, 3), stride=1, padding=(0, 1)),
            lambda net, s: s / (s.abs() + 1),
        ),
    ),
    pair("bias by how strong a key is", "softmax", "later", score=(weighted_keys, distant_keys)),
    pair(
        "bias by the square from the end",
        "length",
        "length",
        score=(
            lambda net, s: s + net.slopes * from_end(s).square() * 0.1,
            lambda net, s: s + net.slopes * from_end(s) * 0.1,
        ),
    ),
]
