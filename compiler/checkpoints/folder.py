"""A Hugging Face folder: the architecture that config.json names, built by transformers and filled from its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnc.compiler.checkpoints.errors import CheckpointError, first_line

if TYPE_CHECKING:
    from torch import nn


def has_weights(folder: Path) -> bool:
    """Whether the folder holds weights in a form transformers reads."""
    return any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))


def load_model(folder: Path) -> nn.Module:
    """The model with its weights, in eval mode and in the dtype they were saved in.

    Raises CheckpointError for a config or weights that can't be read, a tensor that is missing (transformers would
    make up its values), and where transformers is missing.
    """
    from safetensors import SafetensorError

    kind, config = _kind_and_config(folder)
    try:
        model, info = kind.from_pretrained(folder, config=config, local_files_only=True, output_loading_info=True)
    except (OSError, RuntimeError, SafetensorError, ValueError) as error:
        raise CheckpointError(f"loading the weights of {folder}: {first_line(error)}") from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise CheckpointError(f"{folder}: the weights lack {len(missing)} tensors of the model, such as {missing[0]}")
    module: nn.Module = model.eval()
    return module


def random_model(folder: Path) -> nn.Module:
    """The architecture with random weights, in eval mode. Raises CheckpointError as :func:`load_model` does."""
    kind, config = _kind_and_config(folder)
    model: nn.Module = kind(config).eval()
    return model


def eos_token_ids(model: Any) -> tuple[int, ...]:
    """The end tokens of the generation config, else of the config; empty where neither names one."""
    for config in (getattr(model, "generation_config", None), model.config):
        match getattr(config, "eos_token_id", None):
            case int(token):
                return (token,)
            case [*tokens] if tokens:
                return tuple(int(token) for token in tokens)
    return ()


def require_transformers(path: Path) -> Any:
    """The module. Raises CheckpointError where it isn't installed."""
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise CheckpointError(f"{path}: Hugging Face models need transformers; pip install 'attnc[hf]'") from error
    return transformers


def _kind_and_config(folder: Path) -> tuple[Any, Any]:
    """The model class and the config. Code in the folder is not run: the class must be one of transformers'."""
    architecture = _architecture(folder)
    transformers = require_transformers(folder)
    kind = getattr(transformers, architecture, None)
    if kind is None:
        raise CheckpointError(f"{folder}: transformers {transformers.__version__} has no {architecture}")
    try:
        return kind, transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # each config has checks of its own, and errors of its own
        raise CheckpointError(f"{folder / 'config.json'}: {first_line(error)}") from error


def _architecture(folder: Path) -> str:
    file = folder / "config.json"
    if not file.is_file():
        raise CheckpointError(f"{folder}: a folder without config.json; a Hugging Face folder has one")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"reading {file}: not JSON ({error})") from error
    names = config.get("architectures") if isinstance(config, dict) else None
    if not names:
        raise CheckpointError(f'{file}: names no architecture; add for example "architectures": ["LlamaForCausalLM"]')
    return str(names[0])
