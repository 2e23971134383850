"""Other versions of Triton beside the one in the environment, a folder each: ``python -m tests.triton.versions``.

A folder goes first on ``PYTHONPATH``; torch and the rest stay those of the environment.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "build" / "triton"
PINNED = importlib.metadata.version("triton")
OTHERS = tuple(version for version in ("3.6.0", "3.9.0") if version != PINNED)
"""The oldest we take, and the newest there was when this was written."""
VERSIONS = [PINNED, *(pytest.param(version, marks=pytest.mark.slow) for version in OTHERS)]
"""For ``parametrize``: the environment's own in every run, the others among the slow tests."""


def ensure(version: str) -> Path | None:
    """The folder of a version, installed first where it is missing; None for the environment's own.

    Raises:
        subprocess.CalledProcessError: pip could not install it.
    """
    if version == PINNED:
        return None
    target = FOLDER / version
    if not target.exists():
        install(version, target)
    return target


def install(version: str, target: Path) -> None:
    """Install into a folder beside ``target``, then rename: a folder of that name is always whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{version}-") as folder:
        packages = Path(folder) / "packages"
        what = ["--quiet", "--no-deps", "--no-compile", "--target", str(packages), f"triton=={version}"]
        subprocess.run([sys.executable, "-m", "pip", "install", *what], check=True)
        if not target.exists():
            packages.rename(target)


if __name__ == "__main__":
    for other in OTHERS:
        ensure(other)
