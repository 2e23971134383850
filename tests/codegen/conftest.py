from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the codegen_* helpers

from codegen_build import Kernel, compile_plan
from codegen_interpreted import Build


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where C++ kernels are built, once a session."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="session", params=["c++", "triton"])
def build(request: pytest.FixtureRequest, kernels: Path) -> Build:
    """Makes a plan's kernel: compiled C++, or Triton in its interpreter."""
    return Build(request.param, kernels)


@pytest.fixture(scope="session")
def build_cpp(kernels: Path) -> Callable[..., Kernel]:
    """The same for C++ alone: its threads, its instruction sets, tiles that are no powers of two."""
    return lambda plan, level="-O3": compile_plan(plan, kernels, level)
