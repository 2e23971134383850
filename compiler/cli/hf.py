"""A Hugging Face folder or a GGUF file as a source: the architecture, with its weights where there are any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnc.compiler.checkpoints import folder
from attnc.compiler.checkpoints.checkpoint import find_folder
from attnc.compiler.checkpoints.errors import CheckpointError
from attnc.compiler.cli.errors import CliError


def load(path: Path) -> Any:
    """The model in eval mode, key/value caching off. A folder without weights gives random ones. No network is used.

    Raises CliError for a path that holds no usable checkpoint and where transformers is missing.
    """
    try:
        model = _model(path)
    except CheckpointError as error:
        raise CliError(str(error)) from error
    for module in model.modules():
        if hasattr(getattr(module, "config", None), "use_cache"):
            module.config.use_cache = False
    return model


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


def _model(path: Path) -> Any:
    if path.is_dir() and not folder.has_weights(path) and not any(path.glob("*.gguf")):
        return folder.random_model(path)
    return folder.load_model(find_folder(path))


def _ramp(*shape: int) -> Any:
    """A smooth float32 tensor in [-1, 1]: example data that is the same every time."""
    import math

    import torch

    return torch.sin(torch.arange(math.prod(shape), dtype=torch.float32)).reshape(shape)
