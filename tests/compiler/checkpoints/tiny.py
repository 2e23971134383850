"""Tiny random checkpoints in both forms. The GGUF side is written as llama.cpp's converter does, from its rules."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.",
    "A compiler finds every attention of a model and writes a kernel that does exactly that work.",
    "Grüße, naïve café — 漢字 and 🙂 are bytes as well; 3.14159 is a number, (so) is 42!",
]
UNSEEN = "zebra  über\n\tkernel 2718 漢🙂"
WORDS = 320
COMMON = {"vocab_size": WORDS, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}


@dataclass(frozen=True)
class Family:
    """One architecture: its transformers config, and the properties a GGUF file of it has."""

    model_type: str
    config: dict[str, Any]
    rotary: int = 0
    """Features that are rotated; 0: none."""
    window: int = 0
    head_dim: int = 0
    extra: dict[str, Any] = field(default_factory=dict)


BASE = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
}
THETA = {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}
GEMMA = {**BASE, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 5}

FAMILIES = {
    "llama": Family("llama", {**BASE, **THETA, "rms_norm_eps": 1e-5}, rotary=16),
    "qwen2": Family("qwen2", {**BASE, **THETA, "tie_word_embeddings": True}, rotary=16),
    "qwen3": Family("qwen3", {**BASE, **THETA, "head_dim": 32}, head_dim=32),
    "qwen3moe": Family(
        "qwen3_moe",
        {
            **BASE,
            **THETA,
            "head_dim": 32,
            "moe_intermediate_size": 48,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "norm_topk_prob": True,
        },
        head_dim=32,
        extra={"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 48},
    ),
    "gemma2": Family("gemma2", GEMMA, window=5, head_dim=32),
    "gemma3": Family("gemma3_text", {**GEMMA, "num_hidden_layers": 7}, window=5, head_dim=32),
    "phi3": Family("phi3", {**BASE, **THETA}, rotary=16),
    "starcoder2": Family("starcoder2", {**BASE, **THETA}),
    "stablelm": Family(
        "stablelm", {**BASE, "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.25}}, rotary=4
    ),
    "gpt2": Family("gpt2", {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 128, "n_ctx": 128}),
    "bloom": Family("bloom", {"hidden_size": 64, "n_layer": 3, "n_head": 4}),
}


@cache
def tokenizer() -> Any:
    """A byte-level BPE trained on TEXT, with the special tokens <s>, </s> and <pad>."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>", "<pad>"]
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(TEXT, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )


def model(family: str, seed: int = 0) -> Any:
    """A random model in eval mode; every parameter is random, so that a missed one shows."""
    one = FAMILIES[family]
    config = transformers.AutoConfig.for_model(one.model_type, **{**COMMON, **one.config})
    made = transformers.AutoModelForCausalLM.from_config(config).eval()
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, value in made.named_parameters():
            value.normal_(1.0 if "norm" in name and "bias" not in name else 0.0, 0.25)
    return made


def hf_folder(folder: Path, family: str = "llama", chat_template: str | None = None) -> Any:
    """Save a random model with the tokenizer; returns the model."""
    made = model(family)
    made.save_pretrained(folder)
    words = tokenizer()
    words.chat_template = chat_template
    words.save_pretrained(folder)
    words.chat_template = None
    return made


def write_gguf(path: Path, family: str, made: Any, kind: str = "F32", **changed: Any) -> None:
    """Write ``made`` as a GGUF file, matrices stored as ``kind``. ``changed``: metadata, by key with _ for dots."""
    writer = gguf.GGUFWriter(path, family)
    metadata = {**properties(family, made.config), **vocabulary()}
    for key, value in {**metadata, **changed}.items():
        add(writer, key, value)
    for name, values in tensors(family, made).items():
        store = kind if values.ndim == 2 and values.shape[-1] % 32 == 0 else "F32"
        stored = gguf.GGMLQuantizationType[store]
        writer.add_tensor(name, gguf.quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add(writer: Any, key: str, value: Any) -> None:
    match value:
        case None:
            pass
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case list():
            writer.add_array(key, value)


def properties(family: str, config: Any) -> dict[str, Any]:
    """The metadata under the architecture's name."""
    one = FAMILIES[family]
    rotary = config.rope_parameters if one.rotary or "rope_parameters" in one.config else None
    norm = next(
        n for n in ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_epsilon") if hasattr(config, n)
    )
    norm_key = "attention.layer_norm_rms_epsilon" if norm == "rms_norm_eps" else "attention.layer_norm_epsilon"
    found = {
        "context_length": getattr(config, "max_position_embeddings", 128),
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": getattr(config, "intermediate_size", 256),
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": getattr(config, "num_key_value_heads", None),
        norm_key: float(getattr(config, norm)),
        "rope.freq_base": float(rotary["rope_theta"]) if rotary else None,
        "rope.dimension_count": one.rotary or None,
        "attention.key_length": one.head_dim or None,
        "attention.value_length": one.head_dim or None,
        "attention.sliding_window": one.window or None,
        **one.extra,
    }
    return {f"{family}.{key}": value for key, value in found.items()}


def vocabulary() -> dict[str, Any]:
    """The tokenizer as metadata."""
    words = tokenizer()
    by_id = {index: token for token, index in words.get_vocab().items()}
    merges = [" ".join(pair) for pair in json.loads(words.backend_tokenizer.to_str())["model"]["merges"]]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [by_id[index] for index in range(len(by_id))],
        "tokenizer.ggml.token_type": [3 if index < 3 else 1 for index in range(len(by_id))],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.padding_token_id": 2,
    }


def tensors(family: str, made: Any) -> dict[str, np.ndarray]:
    """The weights by llama.cpp's names and in its layout, float32."""
    architecture = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == family)
    names = gguf.get_tensor_name_map(architecture, made.config.num_hidden_layers)
    found = {}
    for name, value in made.state_dict().items():
        if name == "lm_head.weight" and made.config.tie_word_embeddings and family != "bloom":
            continue
        stem, _, leaf = name.rpartition(".")
        values = value.detach().float().numpy()
        if stem.endswith("mlp.experts"):
            found |= experts(int(stem.split(".")[2]), leaf, values)
            continue
        target = names.get_name(stem) or names.get_name(stem.removeprefix("transformer."))
        assert target is not None, name
        found[f"{target}.{leaf}"] = np.ascontiguousarray(rearranged(family, made.config, f"{target}.{leaf}", values))
    return found


def experts(block: int, leaf: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """Experts of transformers' two stacked matrices as llama.cpp's three."""
    if leaf == "down_proj":
        return {f"blk.{block}.ffn_down_exps.weight": values}
    gate, up = np.split(values, 2, axis=1)
    exps = {"gate": gate, "up": up}
    return {f"blk.{block}.ffn_{part}_exps.weight": np.ascontiguousarray(half) for part, half in exps.items()}


def rearranged(family: str, config: Any, name: str, values: np.ndarray) -> np.ndarray:
    """What llama.cpp's converter does to the values of one tensor."""
    if family == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
        heads = config.num_attention_heads if "attn_q" in name else config.num_key_value_heads
        halves = values.reshape(heads, 2, values.shape[0] // heads // 2, -1)
        return halves.swapaxes(1, 2).reshape(values.shape)
    if family in ("gemma2", "gemma3") and name.endswith("norm.weight"):
        return values + 1
    if family == "gpt2" and name.endswith(
        ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")
    ):
        return values.T
    if family == "bloom" and "attn_qkv" in name:
        by_head = values.reshape(config.n_head, 3, config.hidden_size // config.n_head, *values.shape[1:])
        return by_head.swapaxes(0, 1).reshape(values.shape)
    return values


def dequantised(family: str, made: Any, kind: str) -> dict[str, np.ndarray]:
    """What the stored matrices of :func:`write_gguf` hold, by llama.cpp's names."""
    stored = gguf.GGMLQuantizationType[kind]
    return {
        name: gguf.dequantize(gguf.quantize(values, stored), stored) if values.ndim == 2 else values
        for name, values in tensors(family, made).items()
    }


def ids(length: int, seed: int = 1) -> torch.Tensor:
    """Random token ids, i64[2, length]."""
    return torch.randint(3, WORDS, (2, length), generator=torch.Generator().manual_seed(seed))


def logits(made: Any, length: int = 11) -> torch.Tensor:
    """Logits of random ids, f32[2, length, WORDS]."""
    with torch.no_grad():
        return made(ids(length), use_cache=False).logits
