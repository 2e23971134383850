"""``--inputs file.npz``: example inputs for a model, or the inputs of an IR graph."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnc.compiler.cli.errors import CliError

if TYPE_CHECKING:
    from torch import Tensor

HELP = "An .npz of example inputs: arrays named as the model's arguments, or arr_0, arr_1, … for positional ones."


def read_npz(path: Path) -> dict[str, Tensor]:
    """The arrays of the file as tensors, in file order.

    Raises CliError for a missing or unreadable file and for an array that is no tensor. Nothing is unpickled.
    """
    import numpy
    import torch

    if not path.is_file():
        raise CliError(f"--inputs {path}: no such file")
    try:
        with numpy.load(path, allow_pickle=False) as stored:
            return {name: torch.from_numpy(stored[name].copy()) for name in stored.files}
    except (ValueError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise CliError(
            f"--inputs {path}: not an .npz of numeric arrays ({error}); write it with numpy.savez"
        ) from error


def split(arrays: dict[str, Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional arguments (``arr_N``, by number) and keyword arguments (the rest)."""
    numbered = {int(m[1]): value for name, value in arrays.items() if (m := re.fullmatch(r"arr_(\d+)", name))}
    if sorted(numbered) != list(range(len(numbered))):
        raise CliError(f"--inputs: positional arrays are numbered {sorted(numbered)}; number them from arr_0 on")
    named = {name: value for name, value in arrays.items() if not re.fullmatch(r"arr_\d+", name)}
    return tuple(numbered[i] for i in range(len(numbered))), named
