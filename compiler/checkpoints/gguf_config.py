"""The metadata of a GGUF file as a transformers config, by the tables transformers keeps for its own loader.

Nothing is dropped without a word: a property that the tables don't carry over must agree with the config all the same,
or be implied by the shapes of the weights. Else the file is refused, for its model would write something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attnc.compiler.checkpoints.errors import CheckpointError, first_line
from attnc.compiler.checkpoints.gguf_header import Header

MODEL_TYPES = {
    "bloom": "bloom",
    "falcon": "falcon",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "gpt2": "gpt2",
    "llama": "llama",
    "nemotron": "nemotron",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen2moe": "qwen2_moe",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "stablelm": "stablelm",
    "starcoder2": "starcoder2",
}
"""llama.cpp's name → transformers' name, of architectures that need no code of their own."""

_BETTER = {
    "gpt2": {"context_length": "n_positions"},
    "qwen2moe": {
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    },
    "qwen3": {"attention.key_length": "head_dim"},
    "qwen3moe": {"expert_feed_forward_length": "moe_intermediate_size"},
}
"""What the tables lack: architecture → GGUF property → name in a config."""

_TIED = ("bloom", "falcon")
"""Files of these repeat the embedding as the output, where transformers has one tensor."""

_GEMMA_27B_LAYERS = {"gemma2": 46, "gemma3": 62}

_TOKENS = {
    "bos_token_id": ("bos_token_id",),
    "eos_token_id": ("eos_token_id", "eot_token_id", "eom_token_id"),
    "pad_token_id": ("padding_token_id",),
}
"""Token of a config → keys under ``tokenizer.ggml``; any of the end tokens ends a text."""

_IMPLIED = (
    "attention.key_length",
    "attention.value_length",
    "context_length",
    "expert_feed_forward_length",
    "expert_shared_feed_forward_length",
    "feed_forward_length",
    "vocab_size",
)
"""Properties that the shapes of the weights repeat, or that only bound the length of a text."""

_AGREES: dict[str, Callable[[Any, Any], bool]] = {
    "attention.sliding_window": lambda value, config: (
        isinstance(value, int) and value >= config.max_position_embeddings
    ),
    "attn_logit_softcapping": lambda value, config: value == getattr(config, "attn_logit_softcapping", None),
    "final_logit_softcapping": lambda value, config: value == getattr(config, "final_logit_softcapping", None),
    "rope.dimension_count": lambda value, config: value == _rotary_width(config),
    "rope.scaling.factor": lambda value, config: value in (0, 1),
    "rope.scaling.type": lambda value, config: value == "none",
}
"""Properties that the tables drop → whether a value makes no difference to a config."""


def empty_model(path: Path, header: Header) -> tuple[Any, dict[str, Any]]:
    """The model without values, on the meta device, and the dictionary its config was made from.

    Raises CheckpointError for an architecture that isn't known, metadata that make no model, and a property that would
    be lost.
    """
    if header.architecture not in MODEL_TYPES:
        known = ", ".join(MODEL_TYPES)
        raise CheckpointError(f"{path}: GGUF files of {header.architecture} are not read; those of {known} are")
    raw = _raw(path, header)
    try:
        model = _build(header, raw)
    except Exception as error:  # each config has checks of its own, and errors of its own
        raise CheckpointError(f"{path}: its metadata make no {header.architecture}: {first_line(error)}") from error
    for key, value in _lost(header):
        if key not in _AGREES or not _AGREES[key](value, model.config):
            kind = model.config.model_type
            raise CheckpointError(f"{path}: {header.architecture}.{key} = {value} can't be said in a {kind}")
    return model, raw


def _build(header: Header, raw: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    more = _query_scale(header.architecture, raw)
    config = AutoConfig.for_model(MODEL_TYPES[header.architecture], **raw, **more, dtype="float32")
    auto: Any = AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(config)
    model.config.architectures = [type(model).__name__]
    return model


def _raw(path: Path, header: Header) -> dict[str, Any]:
    from transformers.integrations.ggml import GGUF_CONFIG_DEFAULTS_MAPPING

    names = {tensor.name: tensor for tensor in header.tensors}
    if "token_embd.weight" not in names:
        raise CheckpointError(f"{path}: holds no token_embd.weight: not a language model")
    table, defaults = _table(header), GGUF_CONFIG_DEFAULTS_MAPPING.get(MODEL_TYPES[header.architecture], {})
    return {
        **defaults,
        **{name: value for key, value in _properties(header) if (name := table.get(key))},
        **_special_tokens(header),
        "vocab_size": names["token_embd.weight"].shape[0],
        "tie_word_embeddings": "output.weight" not in names or header.architecture in _TIED,
    }


def _query_scale(architecture: str, raw: dict[str, Any]) -> dict[str, int]:
    """What Gemma scales queries by. No file says it; llama.cpp tells the models of 27 billion by their layers."""
    if architecture not in _GEMMA_27B_LAYERS:
        return {}
    if raw["num_hidden_layers"] == _GEMMA_27B_LAYERS[architecture]:
        return {"query_pre_attn_scalar": raw["hidden_size"] // raw["num_attention_heads"]}
    return {"query_pre_attn_scalar": raw["head_dim"]}


def _table(header: Header) -> dict[str, str | None]:
    """GGUF property → name in a config; None for one that transformers leaves out."""
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING

    theirs: dict[str, Any] = GGUF_CONFIG_MAPPING
    table = theirs[MODEL_TYPES[header.architecture].removesuffix("_text")]
    return {"rope.freq_base": "rope_theta", **table, **_BETTER.get(header.architecture, {})}


def _properties(header: Header) -> Iterator[tuple[str, Any]]:
    start = f"{header.architecture}."
    return ((key.removeprefix(start), value) for key, value in header.metadata.items() if key.startswith(start))


def _lost(header: Header) -> Iterator[tuple[str, Any]]:
    """Properties that reach neither the config nor, as shapes, the weights."""
    table = _table(header)
    return ((key, value) for key, value in _properties(header) if not table.get(key) and key not in _IMPLIED)


def _special_tokens(header: Header) -> dict[str, Any]:
    """The ids the file names: one, or a list of several."""
    found: dict[str, Any] = {}
    for name, keys in _TOKENS.items():
        given = (header.metadata.get(f"tokenizer.ggml.{key}") for key in keys)
        ids = list(dict.fromkeys(token for token in given if token is not None))
        if ids:
            found[name] = ids[0] if len(ids) == 1 else ids
    return found


def _rotary_width(config: Any) -> int:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(head_dim * (getattr(config, "rope_parameters", None) or {}).get("partial_rotary_factor", 1.0))
