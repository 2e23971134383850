"""What a path holds, and a checkpoint whole: model, tokenizer, end tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attnc.compiler.checkpoints import folder as hf
from attnc.compiler.checkpoints import gguf
from attnc.compiler.checkpoints.errors import CheckpointError
from attnc.compiler.checkpoints.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Checkpoint:
    """A model with what is needed to feed it text."""

    model: nn.Module
    """In eval mode, as transformers makes it; a GGUF's is float32, another has the dtype it was saved in."""
    tokenizer: Tokenizer | None
    chat_template: str | None
    """The Jinja text that ``tokenizer.chat`` fills; None where the checkpoint has none."""
    eos_token_ids: tuple[int, ...]
    """Tokens that end a text; empty where nothing names one."""
    name: str
    """The name of the folder or file, without its suffix."""


def load_checkpoint(path: str | Path, store: Path | None = None) -> Checkpoint:
    """The checkpoint at ``path``: a Hugging Face folder, a ``.gguf`` file, or a folder with one.

    ``store`` is the root of the cache that GGUF files are converted to (see :func:`gguf.as_folder`); None: the
    default one. Raises CheckpointError for what is absent, damaged or unknown, and where a package is missing.
    """
    path = Path(path).expanduser()
    found = find_folder(path, store)
    model, tokenizer = hf.load_model(found), load_tokenizer(found)
    return Checkpoint(
        model=model,
        tokenizer=tokenizer,
        chat_template=tokenizer.chat_template if tokenizer else None,
        eos_token_ids=hf.eos_token_ids(model) or (tokenizer.eos_token_ids if tokenizer else ()),
        name=path.resolve().stem if path.is_file() else path.resolve().name,
    )


def find_folder(path: Path, store: Path | None = None) -> Path:
    """The Hugging Face folder with the weights of ``path``: itself, or the one its GGUF file is converted to.

    Raises CheckpointError for what holds no weights, and whatever :func:`gguf.as_folder` raises.
    """
    if path.is_file():
        if path.suffix == ".gguf":
            return gguf.as_folder(path, store)
        raise CheckpointError(f"{path}: not a checkpoint; give a Hugging Face folder or a .gguf file")
    if not path.is_dir():
        raise CheckpointError(f"{path}: no such file or folder")
    if hf.has_weights(path):
        return path
    match sorted(path.glob("*.gguf")):
        case []:
            raise CheckpointError(f"{path}: holds no weights: neither *.safetensors nor *.bin nor *.gguf")
        case [file]:
            return gguf.as_folder(file, store)
        case files:
            names = ", ".join(file.name for file in files)
            raise CheckpointError(f"{path}: holds {len(files)} GGUF files; name one of {names}")
