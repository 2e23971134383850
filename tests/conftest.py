"""What every test shares: a kernel store of its own, the order, and reproducible properties."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest

HERE = Path(__file__).parent
STORE = pytest.StashKey[str]()
"""The session's kernel store, in the process that made it."""
ORDER = ("ir", "codegen", "test_", "compiler/test_", "compiler", "models", "runtime")
"""Folders and files of tests, by the start of their path: what needs no torch comes first, long files before short."""

# No deadline: the machine may be busy. Derandomized: a red run is red again.
hypothesis.settings.register_profile("attnc", deadline=None, derandomize=True)
hypothesis.settings.load_profile("attnc")


def pytest_configure(config: pytest.Config) -> None:
    """One empty kernel store for the session, shared by its workers, which inherit the variable."""
    if not hasattr(config, "workerinput"):
        config.stash[STORE] = os.environ["ATTNC_CACHE_DIR"] = tempfile.mkdtemp(prefix="attnc-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if STORE in config.stash:
        shutil.rmtree(config.stash[STORE], ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pure tests first; tests marked ``gpu`` are skipped where there is no device."""
    items.sort(key=lambda item: rank(item.path))
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and not has_gpu():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def rank(path: Path) -> int:
    relative = path.relative_to(HERE).as_posix()
    return next((place for place, start in enumerate(ORDER) if relative.startswith(start)), len(ORDER))


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
