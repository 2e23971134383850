"""Damaged artifacts: an error that is told or the right result; no crash, no hang, no giant allocation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HARMLESS = ("refused", "right")
BY_DESIGN = ("edited", "edited_manifest", "flipped_entry", "cut_entry", "swapped")
"""Whoever edits a program and its hashes has another program: it may give other results, or fail when it is run."""


def verdicts(script: Callable[..., Any], sample: Path, folder: Path, count: int, seed: int) -> list[dict[str, Any]]:
    folders = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    text = f"import sys\nsys.path[:0] = {folders!r}\nimport mutations\n"
    text += f"mutations.main({str(sample)!r}, {str(folder)!r}, {str(count)!r}, {str(seed)!r})\n"
    return [json.loads(line) for line in script(text).stdout.splitlines()]


def check(found: list[dict[str, Any]], count: int) -> Counter[str]:
    assert len(found) == count
    bad = [one for one in found if one["verdict"].startswith(("UNTOLD", "ENDED")) or one["seconds"] > 30]
    assert bad == []
    outside = [one for one in found if one["mutation"] not in BY_DESIGN and one["verdict"] not in HARMLESS]
    assert outside == []
    return Counter(one["verdict"] for one in found)


def test_a_few(made: Callable[..., Path], script: Callable[..., Any], tmp_path: Path) -> None:
    check(verdicts(script, made(), tmp_path, 30, seed=1), 30)


@pytest.mark.slow
def test_two_hundred(made: Callable[..., Path], script: Callable[..., Any], tmp_path: Path) -> None:
    found = check(verdicts(script, made(), tmp_path, 200, seed=2), 200)
    assert found["refused"] >= 120
