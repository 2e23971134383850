"""Linear layers over packed weights, whatever is faster here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from attnc.runtime import skinny_choice


@pytest.fixture(autouse=True)
def packed() -> Iterator[None]:
    with skinny_choice.forced(True):
        yield
