"""The interpreter under every Triton: the environment's own, and the others among the slow tests."""

from __future__ import annotations

import pytest

from tests.triton.versions import VERSIONS
from tests.triton.worker import Worker, interpreted


@pytest.fixture(scope="session", params=VERSIONS)
def interpreter(request: pytest.FixtureRequest) -> Worker:
    return interpreted(request.param)
