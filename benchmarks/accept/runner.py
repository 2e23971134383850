"""Runs a stage's checks, keeps what passed, and writes the record.

State lies in ``build/accept/<stage>.json`` and belongs to one state of the sources: any change starts afresh, so a
record never mixes two of them. A failed shard is run again by the next call, a passed one is not.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.accept.checks import Check, Shard
from benchmarks.accept.shard import Outcome, run_shard

ROOT = Path(__file__).parents[2]
# What a run itself rewrites, so it can't be part of the sources' digest.
KEPT_BY_RUNS = frozenset({"benchmarks/accept/fused_bugs.json"})
PACKAGES = ("torch", "triton", "transformers", "numpy", "sympy", "islpy")

Say = Callable[[str], None]
Run = Callable[[Shard], Outcome]


@dataclass(frozen=True)
class Files:
    """Where state and record go."""

    state: Path
    record: Path

    @staticmethod
    def of(stage: int) -> Files:
        return Files(ROOT / "build" / "accept" / f"{stage}.json", ROOT / "docs" / "acceptance" / f"{stage}.json")


def accept(
    stage: int,
    checks: Sequence[Check],
    files: Files,
    *,
    source: str,
    seconds: float | None = None,
    jobs: int = 1,
    run: Run = run_shard,
    say: Say = print,
) -> int:
    """Run what hasn't passed yet; returns 0 where nothing failed, 1 where something did, 3 where time ran out first.

    ``source`` identifies the sources (:func:`source_digest`). With ``seconds``, no shard is started after that long.
    ``jobs`` shards run at once; those that assert a time, then those marked last, run after them, each alone. The
    record is written once every shard has run.
    """
    start = time.monotonic()
    done = _resume(files.state, source)
    lock = threading.Lock()

    def attempt(key: str, shard: Shard) -> bool:
        if seconds is not None and time.monotonic() - start > seconds:
            say(f"{key}: not started, time is up; the same command goes on from here")
            return False
        say(f"{key}: running")
        outcome = run(shard)
        with lock:
            done[key] = outcome.to_dict()
            _write(files.state, {"source": source, "shards": done})
        word = "passed" if outcome.passed else "FAILED"
        say(f"{key}: {word} in {outcome.seconds:.0f} s\n{outcome.detail}".rstrip())
        return True

    pending: list[tuple[str, Shard]] = []
    for key, shard in ((f"{check.name}/{shard.name}", shard) for check in checks for shard in check.shards):
        if done.get(key, {}).get("passed"):
            say(f"{key}: passed before")
        else:
            pending.append((key, shard))
    together = [item for item in pending if not (item[1].retries or item[1].last)] if jobs > 1 else []
    with ThreadPoolExecutor(jobs) as pool:
        started = list(pool.map(lambda item: attempt(*item), together))
    alone = sorted((item for item in pending if item not in together), key=lambda item: item[1].last)
    started += [attempt(*item) for item in alone]
    if not all(started):
        return 3
    record = {"stage": stage, **surroundings(), "checks": [_verdict(check, done) for check in checks]}
    _write(files.record, record)
    return _summary(record["checks"], say)


def source_digest() -> str:
    """A digest of every source file, tracked or new, but neither of documentation nor of lists that a run rewrites."""
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard")
    digest = hashlib.sha256()
    for name in sorted(set(listed.splitlines()) - KEPT_BY_RUNS):
        path = ROOT / name
        if path.suffix != ".md" and not name.startswith("docs/") and path.is_file():
            digest.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def surroundings() -> dict[str, Any]:
    """Commit, versions and machine of a record."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {
        "commit": _git("rev-parse", "--verify", "--quiet", "HEAD").strip() or None,
        "changed": bool(_git("status", "--porcelain", "--", ":!docs").strip()),
        "date": time.strftime("%Y-%m-%d"),
        "versions": {"python": platform.python_version(), **versions},
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.system()},
    }


def _resume(state: Path, source: str) -> dict[str, dict[str, Any]]:
    """The shards that ran on these sources; none where there is no such state."""
    try:
        stored = json.loads(state.read_text(encoding="utf-8"))
        return dict(stored["shards"]) if stored["source"] == source else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _verdict(check: Check, done: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    outcomes = {shard.name: done[f"{check.name}/{shard.name}"] for shard in check.shards}
    status = "open" if not outcomes else "passed" if all(o["passed"] for o in outcomes.values()) else "failed"
    shards = {name: {k: v for k, v in o.items() if v not in ("", {})} for name, o in outcomes.items()}
    return {"name": check.name, "promise": check.promise, "status": status, "shards": shards}


def _summary(verdicts: Sequence[Mapping[str, Any]], say: Say) -> int:
    for verdict in verdicts:
        say(f"{verdict['status']:7} {verdict['name']}: {verdict['promise']}")
    count = {status: sum(v["status"] == status for v in verdicts) for status in ("passed", "failed", "open")}
    say(", ".join(f"{number} {status}" for status, number in count.items()))
    return 1 if count["failed"] else 0


def _write(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def _git(*arguments: str) -> str:
    """Output of a git command; empty where it has none to give, as before the first commit."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
