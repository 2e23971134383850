"""Runs one shard in a process of its own and says how it went."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree as ET
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.accept.checks import LIMIT, Shard

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    """How a shard went; ``detail`` holds the last lines of a failure."""

    passed: bool
    seconds: float
    tries: int = 1
    figures: dict[str, object] = field(default_factory=dict)
    detail: str = ""

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def run_shard(shard: Shard, limit: float = LIMIT) -> Outcome:
    """Run the shard, again where it may be retried; stopped after ``limit`` seconds a try."""
    for attempt in range(shard.retries + 1):
        outcome = _once(shard, limit, attempt + 1)
        if outcome.passed:
            break
    return outcome


def _once(shard: Shard, limit: float, tries: int) -> Outcome:
    with tempfile.TemporaryDirectory() as scratch:
        result = Path(scratch) / "result"
        start = time.perf_counter()
        code, text = _process(_command(shard, result), limit)
        seconds = time.perf_counter() - start
        figures = _figures(shard, result)
    passed = code == 0 and (shard.kind == "call" or bool(figures.get("passed")))
    reason = f"stopped after {limit:.0f} s" if code is None else f"exit {code}"
    detail = "" if passed else "\n".join([reason, *text.splitlines()[-40:]])
    return Outcome(passed, round(seconds, 1), tries, figures, detail)


def _command(shard: Shard, result: Path) -> list[str]:
    if shard.kind == "pytest":
        return [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rfE",
            "--show-capture=no",
            f"--junitxml={result}",
            *shard.target,
        ]
    return [sys.executable, "-m", "benchmarks.accept.shard", *shard.target, str(result)]


def _process(command: list[str], limit: float) -> tuple[int | None, str]:
    """Exit status (None: stopped at the limit) and output. The whole process group ends with it."""
    environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **os.environ}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=limit)
        return process.returncode, text
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        return None, text


def _figures(shard: Shard, result: Path) -> dict[str, object]:
    if not result.is_file():
        return {}
    if shard.kind == "call":
        figures: dict[str, object] = json.loads(result.read_text(encoding="utf-8"))
        return figures
    return _junit(result)


def _junit(result: Path) -> dict[str, object]:
    """Counts of a pytest run, and what its tests gave to ``record_property``."""
    suites = list(ET.parse(result).getroot().iter("testsuite"))
    count = {key: sum(int(s.get(key, 0)) for s in suites) for key in ("tests", "failures", "errors", "skipped")}
    passed = count["tests"] - count["failures"] - count["errors"] - count["skipped"]
    recorded = {
        f"{case.get('name')}: {entry.get('name')}": entry.get("value")
        for suite in suites
        for case in suite.iter("testcase")
        for entry in case.iter("property")
    }
    return {"passed": passed, "skipped": count["skipped"], **recorded}


def main() -> int:
    """``python -m benchmarks.accept.shard module:function [ARGUMENT…] FILE``: call it, write its figures."""
    target, *arguments, result = sys.argv[1:]
    module, _, name = target.partition(":")
    try:
        figures = getattr(importlib.import_module(module), name)(*arguments)
    except AssertionError:
        traceback.print_exc()
        return 1
    Path(result).write_text(json.dumps(figures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
