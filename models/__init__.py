"""Small readable reference transformers, reached by name (``models:llama``) or as modules.

Each family is a file with a frozen ``Config``, the module classes, and factories ``tiny()`` and ``small()``. Attention
is written out naively: making it fast is the compiler's work.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

_FACTORIES = {
    "bert": ("attnc.models.bert", "tiny"),
    "bert-small": ("attnc.models.bert", "small"),
    "bigbird": ("attnc.models.bigbird", "tiny"),
    "bigbird-small": ("attnc.models.bigbird", "small"),
    "bloom": ("attnc.models.bloom", "tiny"),
    "bloom-six": ("attnc.models.bloom", "six_heads"),
    "bloom-small": ("attnc.models.bloom", "small"),
    "captioner": ("attnc.models.captioner", "tiny"),
    "captioner-small": ("attnc.models.captioner", "small"),
    "falcon": ("attnc.models.falcon", "tiny"),
    "falcon-small": ("attnc.models.falcon", "small"),
    "gpt2": ("attnc.models.gpt2", "tiny"),
    "gpt2-small": ("attnc.models.gpt2", "small"),
    "llama": ("attnc.models.llama", "tiny"),
    "llama-small": ("attnc.models.llama", "small"),
    "longformer": ("attnc.models.longformer", "tiny"),
    "longformer-small": ("attnc.models.longformer", "small"),
    "minilm": ("attnc.models.minilm", "load"),
    "mistral": ("attnc.models.mistral", "tiny"),
    "mistral-small": ("attnc.models.mistral", "small"),
    "sparse": ("attnc.models.sparse", "tiny"),
    "sparse-small": ("attnc.models.sparse", "small"),
    "t5": ("attnc.models.t5", "tiny"),
    "t5-small": ("attnc.models.t5", "small"),
    "transformer": ("attnc.models.transformer", "tiny"),
    "transformer-small": ("attnc.models.transformer", "small"),
    "vit": ("attnc.models.vit", "tiny"),
    "vit-small": ("attnc.models.vit", "small"),
    "whisper": ("attnc.models.whisper", "tiny"),
    "whisper-small": ("attnc.models.whisper", "small"),
}


def names() -> tuple[str, ...]:
    """The names :func:`build` knows, sorted."""
    return tuple(_FACTORIES)


def build(name: str) -> nn.Module:
    """The model of this name, in eval mode. Raises ValueError for an unknown name."""
    if name not in _FACTORIES:
        raise ValueError(f"models:{name}: no such model; there are {', '.join(_FACTORIES)}")
    module, factory = _FACTORIES[name]
    make: Callable[[], nn.Module] = getattr(importlib.import_module(module), factory)
    return make()
