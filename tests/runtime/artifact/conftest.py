from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # artifact_samples, here and in the processes that tests start

import artifact_samples as samples


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    """An artifact with one causal attention, with the given parts changed."""

    def make(**changes: object) -> Path:
        return samples.write(tmp_path / "model.attnc", **changes)  # type: ignore[arg-type]

    return make
