"""Decoders with a past as an input, and with buffers, that a program can be made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnc.compiler.derive.past.roles import ModelCache
from attnc.models.layers import rope_table, rotate
from benchmarks.cases.cached.net import (
    FEATURES,
    LIMIT,
    VOCABULARY,
    Concatenated,
    Counting,
    Growing,
    Net,
    Parts,
    Plain,
    Sliced,
    Static,
    assigned,
    copied,
    net,
)
from benchmarks.cases.decoders import Decoder, decoder

WINDOW = 8


def window(at: Tensor, keys: Tensor) -> Tensor:
    """Bool [S, T]: the query's own key and the seven before it."""
    return (keys[None, :] <= at[:, None]) & (keys[None, :] > at[:, None] - WINDOW)


def distance(at: Tensor, keys: Tensor) -> Tensor:
    """float [S, T]: how far a key is behind its query, negative."""
    return (keys[None, :] - at[:, None]).float()


def turned(net: Net, k: Tensor, keys: Tensor) -> Tensor:
    """Keys [B, G, T, D] rotated by their positions int [T]."""
    return rotate(k, *rope_table(keys, FEATURES, 100.0, k.dtype))


LEARNED, ROTARY = Parts(learned=True), Parts(rotary=True)
ALIBI, BAND = Parts(bias=distance), Parts(rotary=True, visible=window)
LATE = Parts(rotary=True, late=True, stored=turned)
BY_TOKEN = Growing(
    join=lambda past, new: torch.cat((past.transpose(1, 2), new), 2),
    kept=lambda whole, past, new: whole.transpose(1, 2),
    length=1,
)
"""A past of [B, P, G, D]."""


@dataclass(frozen=True)
class Carried:
    """``carry`` makes a model with a cache of the plain one that ``decoder`` makes."""

    name: str
    decoder: Decoder
    carry: Callable[[Any], nn.Module]
    cache: Callable[[nn.Module], ModelCache | None] = lambda model: None


def _of(name: str, parts: Parts, carry: Callable[[Plain], nn.Module]) -> Carried:
    plain = Decoder(name, lambda implementation: Plain(net(parts)), LIMIT, vocabulary=VOCABULARY)
    return Carried(name, plain, carry)


def _past(name: str, parts: Parts, growing: Growing | None = None) -> Carried:
    return _of(f"past-{name}", parts, lambda plain: Concatenated(plain.net, growing or Growing()))


def _theirs(name: str, cache: Callable[[nn.Module], ModelCache]) -> Carried:
    """An unmodified model of Hugging Face's library, with its own cache."""
    return Carried(f"transformers-{name}", decoder(name), lambda model: model, cache)


def _static(model: Any) -> ModelCache:
    """Hugging Face's static cache."""
    from transformers import StaticCache

    held = StaticCache(config=model.config, max_cache_len=96)
    with torch.no_grad():
        model(torch.zeros(2, 3, dtype=torch.int64), past_key_values=held, use_cache=True)
    return ModelCache("past_key_values", held)


CARRIED: tuple[Carried, ...] = (
    _past("learned", LEARNED),
    _past("rotary", ROTARY),
    _past("alibi", ALIBI),
    _past("window", BAND),
    _past("rotated when read", LATE),
    _past("by token", ROTARY, BY_TOKEN),
    _of("buffer-index_copy", ROTARY, lambda plain: Static(plain.net, copied)),
    _of("buffer-assigned", LEARNED, lambda plain: Static(plain.net, assigned)),
    _of("buffer-alibi", ALIBI, lambda plain: Static(plain.net, copied)),
    _of("buffer-window", BAND, lambda plain: Static(plain.net, copied)),
    _of("buffer-counted", ROTARY, lambda plain: Counting(plain.net, copied)),
    _of("buffer-slices", dataclasses.replace(ROTARY, learned=True), lambda plain: Sliced(plain.net, copied)),
    _theirs("gpt2", lambda model: ModelCache("past_key_values")),
    _theirs("llama", lambda model: ModelCache("past_key_values")),
    _theirs("gpt_neox", lambda model: ModelCache("past_key_values")),
    _theirs("bloom", lambda model: ModelCache("past_key_values")),
    dataclasses.replace(_theirs("llama", _static), name="transformers-llama-static"),
    dataclasses.replace(_theirs("gpt2", _static), name="transformers-gpt2-static"),
)


def carried(name: str) -> Carried:
    """The decoder of this name. Raises StopIteration where there is none."""
    return next(c for c in CARRIED if c.name == name)
