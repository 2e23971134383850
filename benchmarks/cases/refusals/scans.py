"""Memory that isn't attention's: scans, convolutions and shifts along tokens.

Most of these are causal. What a row needs of earlier tokens is then a state that keys and values don't hold.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.cases.refusals.net import VOCABULARY, WIDTH, Net, Part, embed
from benchmarks.cases.refusals.pairs import Pair, pair


def convolved(before: int, after: int, dilation: int = 1) -> Part:
    """A convolution of three tokens, padded so that it is causal or centred."""

    def add(net: Net, x: Tensor) -> Tensor:
        padded = F.pad(x.transpose(1, 2), (before, after))
        return x + F.conv1d(padded, net.kernel, dilation=dilation).transpose(1, 2)

    return add


def linear(net: Net, x: Tensor) -> Tensor:
    return x + F.linear(x, net.square)


def depthwise(net: Net, x: Tensor) -> Tensor:
    padded = F.pad(x.transpose(1, 2), (2, 0))
    return x + F.conv1d(padded, net.kernel[:, :1], groups=WIDTH).transpose(1, 2)


def scaled(net: Net, x: Tensor) -> Tensor:
    return x + x * net.kernel[:, 0, 0]


def decayed(net: Net, x: Tensor) -> Tensor:
    """A sum over earlier tokens with weights that fall by half: a recurrence written as a matrix."""
    at = torch.arange(x.shape[1])
    past = torch.where(at[:, None] > at, 0.5 ** (at[:, None] - at), 0.0).to(x.dtype)
    return x + past @ x


def placed(net: Net, x: Tensor) -> Tensor:
    return x + x * 0.5 ** (torch.arange(x.shape[1])[:, None] % 4)


def linear_attention(net: Net, x: Tensor) -> Tensor:
    """Attention without softmax: the running sum of outer products, read by each token."""
    state = (x[..., :, None] * x[..., None, :]).cumsum(1)
    return x + torch.einsum("bsv,bsvw->bsw", x.tanh(), state) * 0.1


def bilinear(net: Net, x: Tensor) -> Tensor:
    own = (x[..., :, None] * x[..., None, :]).cumsum(2)
    return x + torch.einsum("bsv,bsvw->bsw", x.tanh(), own) * 0.1


def gru(net: Net, x: Tensor) -> Tensor:
    """A gated recurrence, token by token."""
    state, states = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        gate = F.linear(x[:, t], net.square).sigmoid()
        state = gate * state + (1 - gate) * F.linear(state + x[:, t], net.square).tanh()
        states.append(state)
    return x + torch.stack(states, 1)


def gru_once(net: Net, x: Tensor) -> Tensor:
    """The same without the loop: each token from an empty state."""
    gate = F.linear(x, net.square).sigmoid()
    return x + (1 - gate) * F.linear(x, net.square).tanh()


def lstm(net: Net, x: Tensor) -> Tensor:
    """Two states, token by token."""
    cell = hidden = torch.zeros_like(x[:, 0])
    outputs = []
    for token in x.unbind(1):
        mixed = F.linear(token + hidden, net.square)
        cell = mixed.sigmoid() * (cell + mixed.tanh())
        hidden = mixed.sigmoid() * cell.tanh()
        outputs.append(hidden)
    return x + torch.stack(outputs, 1)


def lstm_once(net: Net, x: Tensor) -> Tensor:
    mixed = F.linear(x, net.square)
    return x + mixed.sigmoid() * (mixed.sigmoid() * mixed.tanh()).tanh()


def held(size: int) -> Tensor:
    """0, 0, 2, 2, … [size]."""
    return torch.arange(size) // 2 * 2


def bigrams(net: Net, ids: Tensor) -> Tensor:
    """Each token is embedded with the one before."""
    before = F.pad(ids, (1, -1))
    return embed(net, ids) + net.read((ids * 5 + before) % VOCABULARY)


def hashed(net: Net, ids: Tensor) -> Tensor:
    return embed(net, ids) + net.read((ids * 5 + 1) % VOCABULARY)


def copies_before(net: Net, ids: Tensor) -> Tensor:
    """How many earlier tokens are the same."""
    at = torch.arange(ids.shape[1])
    same = (ids[:, :, None] == ids[:, None, :]) & (at < at[:, None])
    return embed(net, ids) + same.sum(-1, keepdim=True)


PAIRS: list[Pair] = [
    pair(
        "running sum",
        "cumsum",
        "state",
        before=(lambda net, x: x + x.cumsum(1), lambda net, x: x + x.cumsum(2)),
    ),
    pair(
        "running product",
        "cumprod",
        "state",
        after=(lambda net, x: x + x.tanh().cumprod(1), lambda net, x: x + x.tanh().cumsum(2)),
    ),
    pair(
        "running maximum",
        "cummax",
        "state",
        before=(lambda net, x: x + x.cummax(1).values, lambda net, x: x + x.amax(2, keepdim=True)),
    ),
    pair("causal convolution", "conv", "state", before=(convolved(2, 0), linear)),
    pair("causal convolution after attention", "conv", "state", after=(convolved(2, 0), linear)),
    pair("dilated convolution", "conv", "state", before=(convolved(4, 0, 2), linear)),
    pair("centred convolution", "conv", "later", before=(convolved(1, 1), linear)),
    pair("short convolution of each feature", "conv", "state", before=(depthwise, scaled)),
    pair(
        "tokens shifted by padding",
        "pad",
        "state",
        before=(lambda net, x: x + F.pad(x, (0, 0, 1, -1)), lambda net, x: x + F.pad(x, (1, -1))),
    ),
    pair("tokens rolled", "roll", "later", before=(lambda net, x: x + x.roll(1, 1), lambda net, x: x + x.roll(1, 2))),
    pair(
        "tokens shifted by slice and cat",
        "cat",
        "state",
        least=3,
        before=(
            lambda net, x: x + torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1),
            lambda net, x: x + torch.cat((torch.zeros_like(x[..., :1]), x[..., :-1]), 2),
        ),
    ),
    pair(
        "differences of tokens",
        "diff",
        "state",
        before=(
            lambda net, x: x + x.diff(dim=1, prepend=x[:, :1]),
            lambda net, x: x + x.diff(dim=2, prepend=x[..., :1]),
        ),
    ),
    pair("tokens embedded with the one before", "pad", "state", embed=(bigrams, hashed)),
    pair(
        "every second token held",
        "index",
        "state",
        before=(
            lambda net, x: x + x[:, held(x.shape[1])],
            lambda net, x: x + x[:, :, held(x.shape[2])],
        ),
    ),
    pair("matrix of decay", "matmul", "state", before=(decayed, placed)),
    pair("linear attention", "cumsum", "state", before=(linear_attention, bilinear)),
    pair(
        "windows over tokens",
        "unfold",
        "state",
        before=(
            lambda net, x: x + F.pad(x, (0, 0, 2, 0)).unfold(1, 3, 1).amax(-1),
            lambda net, x: x + x.view(*x.shape[:2], 4, 4).amax(-1).repeat_interleave(4, 2),
        ),
    ),
    pair(
        "mean of three tokens",
        "pool",
        "later",
        before=(
            lambda net, x: x + F.avg_pool1d(x.transpose(1, 2), 3, 1, 1).transpose(1, 2),
            lambda net, x: x + x.mean(2, keepdim=True),
        ),
    ),
    pair(
        "Fourier transform over tokens",
        "fft",
        "later",
        before=(lambda net, x: x + torch.fft.fft(x, dim=1).real, linear),
    ),
    pair("gated recurrence", "loop", "state", exports=False, before=(gru, gru_once)),
    pair("two recurrent states", "loop", "state", exports=False, before=(lstm, lstm_once)),
    pair("how often a token occurred before", "eq", "state", embed=(copies_before, hashed)),
]
