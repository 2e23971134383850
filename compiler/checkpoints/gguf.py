"""A GGUF file as a Hugging Face folder: dequantised to float32 once, then kept in the cache.

transformers reads GGUF files too, but dequantises anew on every load and needs accelerate for it. The folder loads in
seconds, and takes four bytes for each weight.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from attnc.compiler.checkpoints import cache
from attnc.compiler.checkpoints.errors import CheckpointError, first_line
from attnc.compiler.checkpoints.folder import require_transformers
from attnc.compiler.checkpoints.gguf_config import empty_model
from attnc.compiler.checkpoints.gguf_header import Header, read_header
from attnc.compiler.checkpoints.gguf_weights import convert_weights

FORMAT = 1
"""Raise it when the same file is to give another folder."""


def as_folder(path: Path, store: Path | None = None) -> Path:
    """The Hugging Face folder of a GGUF file, made unless the cache holds it.

    Known by the file's content, so the file may move; made anew for another version of transformers. ``store``: the
    root of the cache; None: the default one. Raises CheckpointError for a damaged file, an unknown architecture or
    way of storing, and a missing package.
    """
    transformers = require_transformers(path)
    digest = cache.sha256(path)
    origin = {"sha256": digest, "format": FORMAT, "transformers": transformers.__version__}
    final = cache.root(store) / f"{path.stem}-{digest[:16]}"
    return cache.obtain_folder(final, origin, lambda folder: convert(path, folder))


def convert(path: Path, folder: Path) -> None:
    """Write config, weights and tokenizer of a GGUF file to an existing folder.

    Raises CheckpointError as :func:`as_folder` does, OSError where the folder can't be written.
    """
    if importlib.util.find_spec("gguf") is None:
        raise CheckpointError(f"{path}: GGUF files need the package gguf; pip install 'attnc[hf]'")
    header = read_header(path)
    model, raw = empty_model(path, header)
    weights = convert_weights(path, header, raw, model)
    tokenizer = _tokenizer(path, header)
    for part in (model.config, model.generation_config, tokenizer):
        if part is not None:
            part.save_pretrained(folder)
    _save_weights(weights, folder / "model.safetensors")


def _tokenizer(path: Path, header: Header) -> Any:
    """The tokenizer the metadata describe; None where they describe none.

    Of no class of its own: those of a model family build parts of theirs anew and ignore what a file says.
    """
    from transformers import PreTrainedTokenizerFast

    if header.metadata.get("tokenizer.ggml.model", "none") == "none":
        return None
    try:
        return PreTrainedTokenizerFast.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    except Exception as error:  # tokenizers raises bare Exception for what it can't parse
        raise CheckpointError(f"{path}: its tokenizer: {first_line(error)}") from error


def _save_weights(weights: dict[str, np.ndarray], file: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(weights, file, metadata={"format": "pt"})
    except SafetensorError as error:  # its way to say that the disk is full
        raise OSError(first_line(error)) from error
