"""Text to token ids and back, by the tokenizer of a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnc.compiler.checkpoints.errors import CheckpointError, first_line
from attnc.compiler.checkpoints.folder import require_transformers

FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")
"""A folder with none of these has no tokenizer."""


@dataclass(frozen=True)
class Tokenizer:
    """What a generator needs of a tokenizer."""

    backend: Any
    """The tokenizer of transformers that does the work."""

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt, with the special tokens the model expects, such as the one that begins a text."""
        return list(self.backend(text)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens left out."""
        return str(self.backend.decode(list(ids), skip_special_tokens=True))

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The ids of a conversation, up to where the answer begins. Messages have ``role`` and ``content``.

        Raises CheckpointError where there is no chat template, or it refuses the messages.
        """
        from jinja2 import TemplateError

        if not self.chat_template:
            raise CheckpointError("this checkpoint has no chat template: it continues text and holds no conversation")
        try:
            text = self.backend.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise CheckpointError(f"the chat template of the checkpoint: {first_line(error)}") from error
        return list(self.backend(text, add_special_tokens=False)["input_ids"])

    @property
    def chat_template(self) -> str | None:
        """The Jinja text; of several, the one named ``default``."""
        template = self.backend.chat_template
        return template.get("default") if isinstance(template, dict) else template

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The token that ends a text, or none."""
        token = self.backend.eos_token_id
        return () if token is None else (int(token),)


def load_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a Hugging Face folder; None for a folder without one.

    Raises CheckpointError for one that can't be read.
    """
    if not any((folder / name).is_file() for name in FILES):
        return None
    transformers = require_transformers(folder)
    try:
        if (folder / "tokenizer_config.json").is_file():
            return Tokenizer(transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True))
        # Without a class to go by, the file is taken at its word: it says all but which tokens are special.
        return Tokenizer(transformers.PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True))
    except Exception as error:  # tokenizers raises bare Exception for what it can't parse
        raise CheckpointError(f"loading the tokenizer of {folder}: {first_line(error)}") from error
