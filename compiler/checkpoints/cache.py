"""Large files and folders made from checkpoints: under one lock, by rename, and checked before they are used.

    <store>/checkpoints/<name>-<digest>/   a Hugging Face folder, with manifest.json
                        <name>.gguf        parts of a package, joined
                        .lock

A manifest holds what the folder was made from and the size of every file. Content is not hashed again on each load:
a gigabyte would take as long as loading it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from attnc.compiler.checkpoints.errors import CheckpointError
from attnc.compiler.options import default_cache_dir

MANIFEST = "manifest.json"


def root(store: Path | None) -> Path:
    """The folder of checkpoints under ``store``, a root as ``ATTNC_CACHE_DIR`` names it; None: the default one."""
    return (store or default_cache_dir()) / "checkpoints"


def sha256(path: Path) -> str:
    """The hash of a file's content, in hexadecimal. Raises OSError where it can't be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def obtain_folder(final: Path, origin: Mapping[str, object], build: Callable[[Path], None]) -> Path:
    """``final``, filled by ``build`` unless it is there, made from ``origin``, and whole.

    ``build`` gets an empty folder beside it. Raises CheckpointError where the cache can't be written; whatever
    ``build`` raises leaves nothing behind.
    """
    if _whole(final, origin):
        return final
    with locked(final.parent):
        if not _whole(final, origin):  # another process may have made it while we waited
            with _replacing(final) as temporary:
                temporary.mkdir()
                build(temporary)
                _write_manifest(temporary, origin)
    return final


def obtain_file(final: Path, digest: str, build: Callable[[Path], None]) -> Path:
    """``final``, written by ``build`` unless a file with this SHA-256 is there. The caller checks what it wrote.

    Raises CheckpointError where the cache can't be written; whatever ``build`` raises leaves nothing behind.
    """
    if final.is_file() and sha256(final) == digest:
        return final
    with locked(final.parent), _replacing(final) as temporary:
        build(temporary)
    return final


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the one lock of ``folder``, which is made. It falls with its process.

    Raises CheckpointError for an OSError inside: a folder that can't be written, a full disk.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(
            f"writing to the cache {folder}: {reason}; set ATTNC_CACHE_DIR to a folder with room that you can write"
        ) from error


@contextlib.contextmanager
def _replacing(final: Path) -> Iterator[Path]:
    """A path beside ``final`` that takes its place at the end. Needs the lock: what lies there is of a dead process."""
    temporary = final.with_name(f".{final.name}.tmp")
    _remove(temporary)
    try:
        yield temporary
        _remove(final)
        os.rename(temporary, final)
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _write_manifest(folder: Path, origin: Mapping[str, object]) -> None:
    sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps({"origin": dict(origin), "files": sizes}, indent=2), encoding="utf-8")


def _whole(folder: Path, origin: Mapping[str, object]) -> bool:
    """Whether the folder was made from ``origin`` and every file still has its size. Never raises for what is there."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        sizes = {name: (folder / name).stat().st_size for name in manifest["files"]}
        return bool(manifest["origin"] == dict(origin) and manifest["files"] == sizes)
    except (OSError, ValueError, KeyError, TypeError):
        return False
