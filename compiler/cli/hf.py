"""A Hugging Face folder as a source: the architecture its config names, with its weights where it has any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attnc.compiler.cli.errors import CliError


def load(folder: Path) -> Any:
    """The model in eval mode, key/value caching off. A folder without weights gives random ones. No network is used.

    Raises CliError for a folder without a usable config.json and where transformers is missing.
    """
    architecture = _architecture(folder)
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise CliError(f"{folder}: Hugging Face models need transformers; pip install 'attnc[hf]'") from error
    kind = getattr(transformers, architecture, None)
    if kind is None:
        raise CliError(f"{folder}: transformers {transformers.__version__} has no {architecture}")
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    if any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")):
        model = kind.from_pretrained(folder, config=config, local_files_only=True)
    else:
        model = kind(config)
    return model.eval()


def example_inputs(model: Any, batch: int = 2, length: int = 16) -> dict[str, Any]:
    """Keyword arguments for ``forward`` by the model's main input: token ids, pixels or audio features.

    Raises CliError for any other kind of input.
    """
    import torch

    config = model.config
    ids = torch.arange(batch * length).reshape(batch, length) % config.get_text_config().vocab_size
    match model.main_input_name:
        case "input_ids":
            made = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        case "pixel_values":
            side = config.image_size
            made = {"pixel_values": _ramp(batch, config.num_channels, side, side)}
        case "input_features":
            made = {"input_features": _ramp(batch, config.num_mel_bins, 2 * config.max_source_positions)}
        case other:
            raise CliError(f"{type(model).__name__}: no example inputs for {other}; give --inputs file.npz")
    if config.is_encoder_decoder:
        made["decoder_input_ids"] = ids
    return made


def _architecture(folder: Path) -> str:
    file = folder / "config.json"
    if not file.is_file():
        raise CliError(f"{folder}: a folder without config.json; a Hugging Face folder has one")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CliError(f"reading {file}: not JSON ({error})") from error
    names = config.get("architectures") if isinstance(config, dict) else None
    if not names:
        raise CliError(f'{file}: names no architecture; add for example "architectures": ["LlamaForCausalLM"]')
    return str(names[0])


def _ramp(*shape: int) -> Any:
    """A smooth float32 tensor in [-1, 1]: example data that is the same every time."""
    import math

    import torch

    return torch.sin(torch.arange(math.prod(shape), dtype=torch.float32)).reshape(shape)
