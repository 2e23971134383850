"""A small decoder that keeps its keys and values in any of several ways, and each of its parts replaceable.

Axis letters: B batch, S new tokens, P earlier tokens, T keys that a query meets, H query heads, G key/value heads,
D features of a head, W = H·D, V vocabulary, M places of a buffer. Written naively: nothing is prepared for an analysis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnc.models.layers import merge_heads, repeat_kv, rope_table, rotate, split_heads

HEADS, GROUPS, FEATURES, LAYERS, VOCABULARY, LIMIT = 4, 2, 8, 2, 48, 64
WIDTH = HEADS * FEATURES
FILL = -1e9

Store = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Takes a layer's number, its new keys and values [B, G, S, D]; gives what to attend to, both [B, G, T, D]."""


@dataclass(frozen=True)
class Parts:
    """How a net knows positions. ``at`` int [S] are those of queries, ``keys`` int [T] those of keys."""

    learned: bool = False
    """Whether a table of positions is added to the tokens."""
    rotary: bool = False
    late: bool = False
    """Whether keys are stored as they are, for ``stored`` to rotate."""
    embedded: Callable[[Tensor, int], Tensor] = lambda at, earlier: at
    """Positions to embed and rotate tokens by, of theirs and the number of earlier tokens."""
    visible: Callable[[Tensor, Tensor], Tensor] = lambda at, keys: keys[None, :] <= at[:, None]
    """Bool [S, T]."""
    bias: Callable[[Tensor, Tensor], Tensor] | None = None
    """float [S, T], times a slope of each head."""
    stored: Callable[[Net, Tensor, Tensor], Tensor] = lambda net, k, keys: k
    """Keys [B, G, T, D] as they are attended to, of what the store gave."""


class Net(nn.Module):
    """Two layers of grouped attention over what a store gives back."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.parts = parts
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LIMIT, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS))
        self.queries = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.pairs = nn.ModuleList(nn.Linear(WIDTH, 2 * GROUPS * FEATURES) for _ in range(LAYERS))
        self.outs = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("slopes", 0.5 ** torch.arange(1, HEADS + 1).float())

    def run(self, ids: Tensor, at: Tensor, keys: Tensor, earlier: int, store: Store) -> Tensor:
        """Logits [B, S, V] of ids int64 [B, S] at positions ``at`` int [S], with keys at positions ``keys`` int [T]."""
        x: Tensor = self.tokens(ids)
        embedded = self.parts.embedded(at, earlier)
        if self.parts.learned:
            x = x + self.places(embedded)
        for layer in range(LAYERS):
            x = x + self.attend(layer, self.norms[layer](x), embedded, at, keys, store)
        logits: Tensor = self.head(x)
        return logits

    def attend(self, layer: int, x: Tensor, embedded: Tensor, at: Tensor, keys: Tensor, store: Store) -> Tensor:
        q = split_heads(self.queries[layer](x), HEADS)
        k, v = (split_heads(part, GROUPS) for part in self.pairs[layer](x).chunk(2, -1))
        if self.parts.rotary:
            cos, sin = rope_table(embedded, FEATURES, 100.0, x.dtype)
            q, k = rotate(q, cos, sin), k if self.parts.late else rotate(k, cos, sin)
        k, v = store(layer, k, v)
        k = self.parts.stored(self, k, keys)
        scores = q @ repeat_kv(k, HEADS // GROUPS).transpose(-2, -1) * FEATURES**-0.5
        if self.parts.bias is not None:
            scores = scores + self.slopes[:, None, None] * self.parts.bias(at, keys)
        scores = scores.masked_fill(~self.parts.visible(at, keys), FILL)
        out: Tensor = self.outs[layer](merge_heads(scores.softmax(-1) @ repeat_kv(v, HEADS // GROUPS)))
        return out


class Plain(nn.Module):
    """The net without a cache."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, input_ids: Tensor) -> Tensor:
        """Logits [B, S, V]."""
        at = torch.arange(input_ids.shape[1])
        return self.net.run(input_ids, at, at, 0, lambda layer, k, v: (k, v))


def net(parts: Parts) -> Net:
    """A net with reproducible weights, of order 1/√fan_in."""
    made = Net(parts).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
            else:
                deviation = 1.0 if name.startswith(("tokens", "places")) else WIDTH**-0.5
                parameter.normal_(0.0, deviation, generator=generator)
    return made


Past = tuple[tuple[Tensor, Tensor], ...]
Join = Callable[[Tensor, Tensor], Tensor]


def joined(past: Tensor, new: Tensor) -> Tensor:
    """Earlier keys or values [B, G, P, D], then new ones [B, G, S, D]."""
    return torch.cat((past, new), 2)


@dataclass(frozen=True)
class Growing:
    """How keys and values are concatenated."""

    join: Join = joined
    """What is attended to."""
    length: int = 2
    """The dimension of a past that counts its tokens."""
    kept: Callable[[Tensor, Tensor | None, Tensor], Tensor] = lambda whole, past, new: whole
    """What is given back for the next call, of what was joined, the past and the new."""
    at: Callable[[Tensor, int], Tensor] = lambda new, earlier: new + earlier
    """Positions of queries, of 0 … S − 1 and P."""
    pairs: Callable[[Past], Past] = lambda past: past
    """The order in which presents are given back."""


class Concatenated(nn.Module):
    """The net with past keys and values as inputs, in the style of ``past_key_values``."""

    def __init__(self, net: Net, growing: Growing) -> None:
        super().__init__()
        self.net, self.growing = net, growing

    def forward(self, input_ids: Tensor, past_key_values: Past | None = None) -> tuple[Tensor, Past]:
        """Logits [B, S, V] and all keys and values so far, a pair for each layer."""
        earlier = 0 if past_key_values is None else past_key_values[0][0].shape[self.growing.length]
        length = input_ids.shape[1]
        presents: list[Tensor] = []

        def keep(new: Tensor, past: Tensor | None) -> Tensor:
            whole = new if past is None else self.growing.join(past, new)
            presents.append(self.growing.kept(whole, past, new))
            return whole

        def store(layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            past: Any = (None, None) if past_key_values is None else past_key_values[layer]
            return keep(k, past[0]), keep(v, past[1])

        at, keys = self.growing.at(torch.arange(length), earlier), torch.arange(earlier + length)
        logits = self.net.run(input_ids, at, keys, earlier, store)
        return logits, self.growing.pairs(tuple(zip(presents[::2], presents[1::2], strict=True)))


Write = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Writes new rows [B, G, S, D] at positions int [S] into a buffer [B, G, M, D]; gives what to attend to."""


def copied(buffer: Tensor, at: Tensor, new: Tensor) -> Tensor:
    """By ``index_copy_``."""
    buffer.index_copy_(2, at, new)
    return buffer


def assigned(buffer: Tensor, at: Tensor, new: Tensor) -> Tensor:
    """By assignment to indices."""
    buffer[:, :, at] = new
    return buffer


class Static(nn.Module):
    """The net with buffers of all places, written where ``cache_position`` says."""

    def __init__(self, net: Net, write: Write, length: int = LIMIT) -> None:
        super().__init__()
        self.net, self.write, self.length = net, write, length
        for layer in range(LAYERS):
            for name in ("keys", "values"):
                self.register_buffer(f"{name}_{layer}", torch.zeros(2, GROUPS, length, FEATURES))

    def forward(self, input_ids: Tensor, cache_position: Tensor) -> Tensor:
        """Logits [B, S, V]; ``cache_position`` int64 [S]."""

        def store(layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            keys, values = (getattr(self, f"{name}_{layer}") for name in ("keys", "values"))
            return self.write(keys, cache_position, k), self.write(values, cache_position, v)

        return self.net.run(input_ids, cache_position, torch.arange(self.length), 0, store)


class Counting(Static):
    """The same with a count of its own instead of ``cache_position``."""

    def __init__(self, net: Net, write: Write) -> None:
        super().__init__(net, write)
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, input_ids: Tensor) -> Tensor:  # type: ignore[override]
        at = torch.arange(input_ids.shape[1]) + self.seen
        self.seen.add_(input_ids.shape[1])
        return super().forward(input_ids, at)


class Sliced(Static):
    """Slices of the buffers are assigned to, and read up to the last token."""

    def forward(self, input_ids: Tensor, start_pos: int) -> Tensor:  # type: ignore[override]
        batch, length = input_ids.shape
        end = start_pos + length

        def fill(buffer: Tensor, new: Tensor) -> Tensor:
            buffer[:batch, :, start_pos:end] = new
            return buffer[:batch, :, :end]

        def store(layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            return fill(getattr(self, f"keys_{layer}"), k), fill(getattr(self, f"values_{layer}"), v)

        return self.net.run(input_ids, torch.arange(start_pos, end), torch.arange(end), start_pos, store)
