"""Figures kept in a file, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def remembered(file: Path, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """What the file holds; where there is none, what ``make`` gives is written to it first, whole or not at all."""
    if not file.exists():
        found = make()
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(found), encoding="utf-8")
        part.replace(file)
    figures: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return figures
