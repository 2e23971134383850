from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("kv_model")


@pytest.fixture(autouse=True)
def configured() -> None:
    """These tests need no kernel store and no launcher."""
