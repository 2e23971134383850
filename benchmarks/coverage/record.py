"""Writes a full run: docs/coverage.json and docs/coverage.svg."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.accept.runner import surroundings
from benchmarks.coverage.picture import draw
from benchmarks.coverage.results import Result
from benchmarks.coverage.tally import Row, by_family, complaints, obstacles, total


def write_record(results: Sequence[Result], folder: Path) -> None:
    """Write both files; each appears whole."""
    _write(folder / "coverage.json", json.dumps(record(results), indent=1) + "\n")
    _write(folder / "coverage.svg", draw(total(results), by_family(results)))


def record(results: Sequence[Result]) -> dict[str, Any]:
    """The JSON record: surroundings, sums, obstacles, complaints, every model."""
    return {
        **surroundings(),
        "total": _row(total(results)),
        "families": {name: _row(row) for name, row in by_family(results).items()},
        "obstacles": [asdict(obstacle) for obstacle in obstacles(results)],
        "complaints": asdict(complaints(results)),
        "models": {result.model: _model(result) for result in results},
    }


def _row(row: Row) -> dict[str, Any]:
    return {"models": row.models, "sites": row.sites, "fused": row.fused, "left": dict(row.left.most_common())}


def _model(result: Result) -> dict[str, Any]:
    fields = result.to_dict()
    return {name: value for name, value in fields.items() if name not in ("model", "seconds", "detail")}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
