"""What a model that keeps keys and values of its own takes beside tokens, by the names model libraries give it."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from attnc.compiler.derive.refusal import INPUT, NotDerivable


class InputRole(enum.Enum):
    """An input that follows from how many tokens came before."""

    POSITIONS = "i64[S], the positions of the new tokens"
    ROWS = "i64[B, S], the same for each request"
    EARLIER = "the number of earlier tokens, an int"
    MASK = "i64[B, P + S], ones: nothing is padding"


ROLES: Mapping[str, InputRole] = {
    **dict.fromkeys(("cache_position", "input_pos", "positions", "pos"), InputRole.POSITIONS),
    "position_ids": InputRole.ROWS,
    **dict.fromkeys(("start_pos", "past_length", "past_len", "cache_length", "offset"), InputRole.EARLIER),
    "attention_mask": InputRole.MASK,
}
"""Names of inputs → what they are."""
PAST = ("past_key_values", "past_key_value", "past_kv", "past", "layer_past", "kv_cache", "cache")
"""Names of the input that holds earlier keys and values."""


@dataclass(frozen=True)
class ModelCache:
    """How a model keeps keys and values, where the names of its inputs don't tell.

    ``past``: the input of earlier keys and values; None: buffers of the model hold them. ``example``: such keys and
    values of any earlier tokens, in the structure the model takes: tuples, lists and dicts of tensors, each with the
    batch first, or a cache object of Hugging Face's library; None: what the model gives back for no past. ``roles``:
    what other inputs are, by name.
    """

    past: str | None = None
    example: Any = None
    roles: Mapping[str, InputRole] = field(default_factory=dict)


def cache_of(model: nn.Module, given: ModelCache | None, tokens: str) -> ModelCache | None:
    """How a model keeps keys and values, what isn't given read off its signature; None for a model without a cache.

    A model that can be told not to (``use_cache``) counts as one without. Raises NotDerivable for inputs it needs that
    have no known role.
    """
    parameters = inspect.signature(model.forward).parameters
    needed = [n for n, p in parameters.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    named = next((name for name in PAST if name in parameters), None)
    if given is None:
        roles = [name for name in needed if name in ROLES and name != "attention_mask"]
        if "use_cache" in parameters or (named is None and not roles):
            return None
        given = ModelCache(named)
    return completed(given, needed, tokens)


def completed(given: ModelCache, needed: list[str], tokens: str) -> ModelCache:
    """The same with a role for every input that must be given. Raises NotDerivable where one has none."""
    roles = dict(given.roles)
    for name in needed:
        if name not in (tokens, given.past) and name not in roles:
            if name not in ROLES:
                raise NotDerivable(INPUT, f"nothing says what its input {name!r} is: name its role (ModelCache.roles)")
            roles[name] = ROLES[name]
    return dataclasses.replace(given, roles=roles)
