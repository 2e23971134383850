"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnc.compiler.cli.errors import CliError


@contextmanager
def staged_file(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, renamed to it when the block succeeds and removed when it doesn't.

    Raises CliError where the folder can't be written to.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    except OSError as error:
        raise CliError(f"writing {path}: {error.strerror}; choose a folder that exists and is writable") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def staged_folder(path: Path) -> Iterator[Path]:
    """A temporary folder, renamed to ``path`` when the block succeeds and removed when it doesn't.

    Raises CliError where ``path`` exists and isn't an empty folder, or can't be made.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise CliError(f"writing {path}: it exists and is no empty folder; remove it or choose another")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise CliError(f"writing {path}: {error.strerror}; choose a place that is writable") from error
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _umask() -> int:
    # mkstemp makes private files; the user's mask is only to be had by setting it.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
