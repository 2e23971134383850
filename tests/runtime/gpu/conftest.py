from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from gpu_fakes import Fake, build  # noqa: E402


@pytest.fixture(autouse=True)
def configured() -> None:
    """These tests need no kernel store and no launcher."""


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("drivers")
    return {name: build(HERE / "fake_driver.c", folder, name) for name in ("cuda", "old", "hip")}


@pytest.fixture
def cuda(libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(libraries["cuda"], monkeypatch)


@pytest.fixture
def hip(libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(libraries["hip"], monkeypatch)
