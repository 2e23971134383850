"""Runs jobs in processes forked from this one, which has everything imported; a crash or a hang ends only its own.

The forking process must run no threads of its own and must not have started OpenMP's.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.coverage.results import Outcome

POLL = 0.05
TAIL = 15

Fields = dict[str, Any]
Job = Callable[[str], Fields]


@dataclass(frozen=True)
class Ended:
    """How a job ended. ``fields``: what it returned; None unless ``outcome`` is measured."""

    name: str
    seconds: float
    fields: Fields | None = None
    outcome: Outcome = "measured"
    detail: str = ""
    """The last lines it printed."""


@dataclass
class _Child:
    name: str
    pid: int
    start: float
    result: Path
    log: Path


def run_forked(
    names: Iterable[str], job: Job, folder: Path, *, limit: float, jobs: int = 1, until: float | None = None
) -> Iterator[Ended]:
    """Run ``job(name)`` for each name, ``jobs`` at once, each for at most ``limit`` seconds; yields as they end.

    Nothing is started after ``until`` (:func:`time.monotonic`). What a job prints goes to ``folder/NAME.log``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    waiting = list(names)
    running: list[_Child] = []
    try:
        while running or waiting:
            late = until is not None and time.monotonic() > until
            if waiting and len(running) < jobs and not late:
                running.append(_start(waiting.pop(0), job, folder))
                continue
            if late and not running:
                return
            ended = [(child, e) for child in running if (e := _look(child, limit)) is not None]
            for child, end in ended:
                running.remove(child)
                yield end
            if not ended:
                time.sleep(POLL)
    finally:
        for child in running:
            _kill(child)


def _start(name: str, job: Job, folder: Path) -> _Child:
    result, log = folder / f"{name}.json", folder / f"{name}.log"
    result.unlink(missing_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(name, job, result, log)
    return _Child(name, pid, time.monotonic(), result, log)


def _child(name: str, job: Job, result: Path, log: Path) -> None:
    """In the child: run the job, leave its result, end without the parent's exit handlers."""
    status = 1
    try:
        os.setsid()  # so that compilers it starts end with it
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(target, 1)
        os.dup2(target, 2)
        sys.stdout = sys.stderr = os.fdopen(target, "w")
        part = result.with_suffix(".part")
        part.write_text(json.dumps(job(name)), encoding="utf-8")
        part.replace(result)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _look(child: _Child, limit: float) -> Ended | None:
    """How the child ended, or None while it runs; one past its limit is ended here."""
    seconds = time.monotonic() - child.start
    pid, status = os.waitpid(child.pid, os.WNOHANG)
    if pid == 0:
        if seconds <= limit:
            return None
        _kill(child)
        return Ended(child.name, seconds, outcome="stopped", detail=_tail(child, f"stopped after {limit:.0f} s"))
    code = os.waitstatus_to_exitcode(status)
    if code == 0 and child.result.is_file():
        fields: Fields = json.loads(child.result.read_text(encoding="utf-8"))
        child.result.unlink()
        return Ended(child.name, seconds, fields)
    if code < 0:
        return Ended(child.name, seconds, outcome="crashed", detail=_tail(child, f"died of {_signal(-code)}"))
    return Ended(child.name, seconds, outcome="failed", detail=_tail(child))


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _kill(child: _Child) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:  # between fork and setsid it has no group yet
        os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)


def _tail(child: _Child, *last: str) -> str:
    try:
        lines = child.log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return "\n".join([*lines[-TAIL:], *last])
