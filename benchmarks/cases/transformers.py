"""Unmodified transformers to compile: tiny random models of Hugging Face's library and our own reference models."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY = 128
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,  # scores of order 1: a wrong mask shows
}
GROUPED: dict[str, Any] = {**TEXT, "num_key_value_heads": 2, "head_dim": 16}


@dataclass(frozen=True)
class Family:
    """One model: how to make it, how many attentions it has, and which inputs it takes."""

    name: str
    sites: int
    make: Callable[[str], nn.Module]
    """Takes ``eager`` or ``sdpa``; our own models ignore it."""
    kind: str = "text"
    """``text`` (token ids and a padding mask), ``pair`` (the same and decoder ids), ``image`` (pixels), ``image-text``
    (pixels and token ids) or ``speech`` (features and decoder ids)."""
    implementations: tuple[str, ...] = ("eager", "sdpa")
    output: Callable[[Any], Tensor] = field(default=lambda out: out[0])

    def model(self, implementation: str = "eager", dtype: torch.dtype = torch.float32) -> nn.Module:
        """The model in eval mode, the same weights each time."""
        torch.manual_seed(0)
        return self.make(implementation).eval().to(dtype)

    def inputs(self, batch: int, length: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> dict[str, Tensor]:
        """Fresh inputs. Text has left padding in its last row, so some queries see no key."""
        generator = torch.Generator().manual_seed(seed)
        pixels: dict[str, Tensor] = {}
        if self.kind.startswith("image"):
            pixels = {"pixel_values": torch.randn(batch, 3, 32, 32, generator=generator).to(dtype)}
        if self.kind == "image":
            return pixels
        ids = torch.randint(0, VOCABULARY, (batch, length), generator=generator)
        if self.kind == "image-text":
            return {**pixels, "input_ids": ids}
        if self.kind == "speech":
            features = torch.randn(batch, 8, 128, generator=generator).to(dtype)
            return {"input_features": features, "decoder_input_ids": ids}
        keep = torch.ones_like(ids)
        keep[-1, : max(1, length // 3)] = 0
        text = {"input_ids": ids, "attention_mask": keep}
        if self.kind == "pair":
            text["decoder_input_ids"] = torch.randint(0, VOCABULARY, (batch, length + 3), generator=generator)
        return text

    @property
    def dynamic(self) -> dict[str, tuple[int, ...]]:
        """The dimensions of each input that vary."""
        axes = {"input_ids": (0, 1), "attention_mask": (0, 1), "decoder_input_ids": (0, 1)}
        return {name: axes.get(name, (0,)) for name in self.inputs(2, 4)}


def _hugging_face(config: str, model: str, **settings: Any) -> Callable[[str], nn.Module]:
    def make(implementation: str) -> nn.Module:
        library = importlib.import_module("transformers")
        chosen = getattr(library, config)(**settings, use_cache=False)
        chosen._attn_implementation = implementation
        built: nn.Module = getattr(library, model)(chosen)
        return built

    return make


def _ours(name: str) -> Callable[[str], nn.Module]:
    def make(implementation: str) -> nn.Module:
        from attnc.models import build

        return build(name)

    return make


def _own(name: str, sites: int = 2, kind: str = "text") -> Family:
    return Family(f"attnc-{name}", sites, _ours(name), kind, implementations=("eager",), output=lambda out: out)


WHISPER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "num_mel_bins": 8,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_source_positions": 64,
    "max_target_positions": 64,
    "init_std": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}

FAMILIES: tuple[Family, ...] = (
    _own("gpt2"),
    _own("llama"),
    _own("mistral"),
    _own("bert"),
    _own("transformer", 6, "pair"),
    _own("t5", 6, "pair"),
    _own("bloom"),
    _own("bloom-six"),
    _own("falcon"),
    _own("sparse"),
    _own("longformer"),
    _own("vit", kind="image"),
    _own("whisper", 6, "speech"),
    _own("captioner", 6, "image-text"),
    Family("llama", 2, _hugging_face("LlamaConfig", "LlamaForCausalLM", **GROUPED)),
    Family("mistral", 2, _hugging_face("MistralConfig", "MistralForCausalLM", **GROUPED, sliding_window=8)),
    Family("qwen3", 2, _hugging_face("Qwen3Config", "Qwen3ForCausalLM", **GROUPED)),
    Family(
        "gemma3",
        2,
        _hugging_face(
            "Gemma3TextConfig",
            "Gemma3ForCausalLM",
            **GROUPED,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
        ),
    ),
    Family("bert", 2, _hugging_face("BertConfig", "BertModel", **TEXT)),
    Family(
        "gpt2",
        2,
        _hugging_face(
            "GPT2Config",
            "GPT2LMHeadModel",
            vocab_size=VOCABULARY,
            n_embd=64,
            n_layer=2,
            n_head=4,
            n_positions=256,
            initializer_range=0.2,
        ),
    ),
    Family(
        "vit",
        2,
        _hugging_face(
            "ViTConfig",
            "ViTModel",
            **{k: v for k, v in TEXT.items() if k not in ("vocab_size", "max_position_embeddings")},
            image_size=32,
            patch_size=8,
        ),
        kind="image",
    ),
    Family("whisper", 6, _hugging_face("WhisperConfig", "WhisperModel", **WHISPER), kind="speech"),
)


def family(name: str) -> Family:
    """The family of this name. Raises StopIteration where there is none."""
    return next(f for f in FAMILIES if f.name == name)
