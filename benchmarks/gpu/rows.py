"""Rows of results: kept in one JSON file that is whole at every moment, whatever a later row does."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

Row = dict[str, Any]
"""What was done (``kind``, ``kernel``, …), ``status``, and what was found."""

OUT_OF_TIME = "not run: out of time"
_NAMES = ("kind", "kernel", "case", "contender")


class Rows:
    """A list of rows, written by rename after each one and printed."""

    def __init__(
        self,
        path: Path,
        minutes: float,
        clock: Callable[[], float] = time.monotonic,
        show: Callable[[str], object] = print,
    ) -> None:
        self.path, self.rows = path, list[Row]()
        self._show, self._clock = show, clock
        self._end = clock() + 60 * minutes

    @property
    def left(self) -> float:
        """Seconds of the time budget that are left; negative after it."""
        return self._end - self._clock()

    def run(self, what: Mapping[str, Any], job: Callable[[], Iterable[Row]]) -> None:
        """Add the rows of a job: each is ``what``, ``status`` "ok" unless it has one, and what the job says.

        One row with the error where the job raises (rows before it stay), and one that says so where time is over.
        """
        if self.left <= 0:
            self.add({**what, "status": OUT_OF_TIME})
            return
        try:
            for row in job():
                self.add({**what, "status": "ok", **row})
        except Exception as failure:
            self.add({**what, **failed(failure)})

    def add(self, row: Row) -> None:
        """Keep a row: on disk when this returns."""
        self.rows.append(row)
        write(self.path, self.rows)
        self._show(line(row))


def failed(failure: Exception) -> Row:
    """The status of what raised: the error's type and the end of its text."""
    return {"status": "error", "error": f"{type(failure).__name__}: {str(failure).strip()[-1500:]}"}


def write(path: Path, value: object) -> None:
    """Write JSON by rename. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def line(row: Mapping[str, Any]) -> str:
    """A row as one line of text."""
    head = " ".join(str(row[name]) for name in _NAMES if name in row)
    rest = ", ".join(f"{k} {_short(v)}" for k, v in row.items() if k not in (*_NAMES, "status"))
    return f"{head}: {row['status']}{'; ' if rest else ''}{rest}"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).splitlines()[-1] if str(value) else ""
