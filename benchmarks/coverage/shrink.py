"""Makes a tiny configuration out of a configuration class: every known field replaced by its small value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PretrainedConfig

from benchmarks.coverage.overrides import overrides
from benchmarks.coverage.sizes import EVEN_IF_NONE, SMALL, TOKENS, VOCABULARY, spare_token

Fields = dict[str, Any]

PER_STAGE = frozenset({"patch_size", "embed_dim", "hidden_size"})
"""Fields that a model with several stages (Swin, PVT, …) derives its stages from; left as they are there."""
LISTED_DEPTHS = frozenset({"depth", "num_layers", "layers"})
DISPENSABLE = ("layer_types", "mlp_layer_types", "no_rope_layers", "head_dim")
"""Fields given back one after the other where a configuration refuses the set."""


def shrunk(kind: type[PretrainedConfig], model_type: str | None = None) -> PretrainedConfig:
    """A tiny configuration of this class. Raises what the class raises for fields it can't accept."""
    default = kind()
    given = dict(vars(default))
    chosen = overrides(model_type or str(kind.model_type))
    fields = {**_sizes(given), **_token_ids(given), **_layer_kinds(given), **_rotary(given)}
    fields |= _latent(given, fields)
    for name in getattr(kind, "sub_configs", None) or {}:
        if isinstance(given.get(name), PretrainedConfig):
            fields[name] = shrunk(type(given[name]))
    return _made(kind, {**fields, **chosen}, keep=chosen)


def _made(kind: type[PretrainedConfig], fields: Fields, keep: Mapping[str, Any]) -> PretrainedConfig:
    fields = dict(fields)
    while True:
        try:
            return kind(**fields)
        except Exception:
            spare = next((name for name in DISPENSABLE if name in fields and name not in keep), None)
            if spare is None:
                raise
            del fields[spare]


def _sizes(given: Fields) -> Fields:
    staged = "depths" in given or any(isinstance(given.get(n), list | tuple) for n in ("hidden_sizes", "num_heads"))
    fields: Fields = {}
    for name, old in given.items():
        if name == "depths" and isinstance(old, list | tuple):
            fields[name] = [1] * len(old)
        elif name not in SMALL or (old is None and name not in EVEN_IF_NONE) or (staged and name in PER_STAGE):
            continue
        elif staged and name == "image_size":
            fields[name] = 64 if isinstance(old, int) else [64, 64]
        else:
            fields[name] = _small(name, old)
    return fields


def _small(name: str, old: Any) -> Any:
    """The small value in the form of the old one; the old one where its form is another."""
    if isinstance(old, bool):
        return old
    if isinstance(old, list | tuple):
        if name in ("image_size", "patch_size") and all(isinstance(x, int) for x in old):
            return type(old)([SMALL[name]] * len(old))
        return type(old)([1] * len(old)) if name in LISTED_DEPTHS else old
    return SMALL[name] if old is None or isinstance(old, int | float) else old


def _token_ids(given: Fields) -> Fields:
    fields: Fields = {}
    for name, old in given.items():
        beyond = isinstance(old, int) and not isinstance(old, bool) and old >= VOCABULARY
        if name in TOKENS and (beyond or isinstance(old, list | tuple)):
            fields[name] = TOKENS[name]
        elif beyond and name.endswith(("_token_id", "_token_index")):
            fields[name] = spare_token(name)
    return fields


def _layer_kinds(given: Fields) -> Fields:
    """Two layers, one of each declared kind; of more than two kinds, two that are not both free of full attention."""
    fields: Fields = {}
    if kinds := _distinct(given.get("layer_types")):
        pair = _pair(kinds)
        others = [kind for kind in kinds[2:] if "attention" in kind]
        if others and not any("full" in kind for kind in pair):
            pair[1] = others[0]
        fields["layer_types"] = pair
    if kinds := _distinct(given.get("mlp_layer_types")):
        fields["mlp_layer_types"] = _pair(kinds)
    if _distinct(given.get("no_rope_layers")):
        fields["no_rope_layers"] = [0, 1]
    return fields


def _distinct(value: object) -> list[Any]:
    return list(dict.fromkeys(value)) if isinstance(value, list | tuple) else []


def _pair(kinds: Sequence[Any]) -> list[Any]:
    return list((*kinds, *kinds)[:2])


def _rotary(given: Fields) -> Fields:
    rope = given.get("rope_parameters")
    if not isinstance(rope, dict) or "mrope_section" not in rope:
        return {}
    return {"rope_parameters": {**rope, "mrope_section": [2, 3, 3]}}


def _latent(given: Fields, fields: Fields) -> Fields:
    """Latent attention rotates a part of the head, and each head has its own key."""
    values = {"head_dim": SMALL["qk_rope_head_dim"], "num_key_value_heads": SMALL["num_attention_heads"]}
    return {n: v for n, v in values.items() if n in fields} if "qk_rope_head_dim" in given else {}
