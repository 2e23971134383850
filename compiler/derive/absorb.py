"""Cache what keys and values are made of, where that is much smaller than they are.

If K = W·c and V = U·c for a vector c of each token that all heads share, then q·K = (Wᵀq)·c and P·V = U·(P·c): the
products with weights move from every cached token to the new queries and results ("absorbed" weights of DeepSeek-V2,
https://arxiv.org/abs/2405.04434, section 2.1.2). The cache holds c once, and beside it the features that all heads
share. Attention over it has one key head, of more features than before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attnc.compiler.derive.known import Known
from attnc.compiler.derive.parts import Part, features, is_shared, parts_of
from attnc.compiler.derive.site import SiteFacts
from attnc.compiler.fuse.layout import tensor_type
from attnc.ir.attention import CONTRACTED, FEATURE, KEY
from attnc.ir.values import Value

GAIN = 2.0
"""How much more memory must be saved than the work at each cached token grows."""


@dataclass(frozen=True)
class Latent:
    """What an attention caches instead of keys and values."""

    head: str
    """The axis of heads that keys and values lose."""
    source: Value
    """c, of ``size`` features."""
    size: int
    products: tuple[Part, ...]
    """Parts of the keys that are products with c."""
    shared: tuple[Part, ...]
    """Parts of the keys that all heads share."""
    values: Part
    """The values: a product with c."""

    @property
    def features(self) -> int:
        """Features that are cached for each token."""
        return self.size + sum(part.size for part in self.shared)


def latent(facts: SiteFacts, known: Callable[[Value], Known | None]) -> Latent | None:
    """What to cache of an attention instead of its keys and values; None where these are the better choice."""
    spec = facts.spec
    keys, values = facts.op.args[1:3]
    assert isinstance(keys, Value) and isinstance(values, Value)
    heads = [a for a in spec.k_axes if a not in (KEY, CONTRACTED, facts.batch)]
    same = heads == [a for a in spec.v_axes if a not in (KEY, FEATURE, facts.batch)]
    if len(heads) != 1 or not same or spec.k_axes[-1] != CONTRACTED or spec.v_axes[-1] != FEATURE:
        return None
    found = _cut(parts_of(keys), parts_of(values), heads[0])
    if found is None or not _all_shared(found, known) or not _pays(found, _length(keys, spec.k_axes, heads[0])):
        return None
    return found


def _cut(keys: list[Part], values: list[Part], head: str) -> Latent | None:
    products = tuple(part for part in keys if part.weight is not None)
    shared = tuple(part for part in keys if part.weight is None)
    if len(values) != 1 or values[0].weight is None or any(p.value is not values[0].value for p in products):
        return None
    return Latent(head, values[0].value, features(values[0].value), products, shared, values[0])


def _all_shared(found: Latent, known: Callable[[Value], Known | None]) -> bool:
    facts = [known(value) for value in (found.source, *(part.value for part in found.shared))]
    return all(fact is not None and is_shared(fact) for fact in facts)


def _pays(found: Latent, heads: int) -> bool:
    """Memory saved against work added, both for one cached token."""
    width = sum(part.size for part in (*found.products, *found.shared))
    before, after = heads * (width + found.values.size), found.features
    work = (found.features + found.size) / (width + found.values.size)
    return before >= GAIN * work * after


def _length(value: Value, axes: tuple[str, ...], axis: str) -> int:
    length = tensor_type(value).shape[axes.index(axis)]
    return length if isinstance(length, int) else 0
