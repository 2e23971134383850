"""Real checkpoints as sources: a Hugging Face folder, or a GGUF file, becomes a model with its tokenizer.

| file | does |
|---|---|
| ``checkpoint.py`` | what a path holds; model, tokenizer and end tokens together |
| ``folder.py`` | a Hugging Face folder, by transformers |
| ``tokenizer.py`` | text to token ids and back |
| ``gguf.py`` | a GGUF file to a Hugging Face folder, kept in the cache |
| ``gguf_header.py``, ``gguf_config.py``, ``gguf_weights.py`` | its parts: header, metadata to config, tensors |
| ``cache.py`` | folders that appear by rename and are checked before they are used |
| ``gemma.py`` | Gemma 3 270M from four packages |

Nothing here uses a network or runs code of a checkpoint.
"""

from attnc.compiler.checkpoints.checkpoint import Checkpoint, load_checkpoint
from attnc.compiler.checkpoints.errors import CheckpointError
from attnc.compiler.checkpoints.tokenizer import Tokenizer

__all__ = ["Checkpoint", "CheckpointError", "Tokenizer", "load_checkpoint"]
