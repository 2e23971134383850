from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the codegen_* helpers

from codegen_build import Kernel, compile_plan


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Kernel]:
    """Compiles a plan, once a session."""
    folder = tmp_path_factory.mktemp("kernels")
    return lambda plan, level="-O3": compile_plan(plan, folder, level)
