"""Runs the zoo and keeps what was measured, so that a stopped run goes on where it was.

State lies in ``build/coverage``, one file of JSON lines for each state of the sources, so that no run mixes two of
them; several shards append to the same file. A model that crashed or ran past its limit is run again by the next call.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.coverage.fork import Job, run_forked
from benchmarks.coverage.results import Listed, Result, lost

LIMIT = 1800
"""Seconds a model may take; on an idle machine the slowest takes a minute."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class State:
    """The results on one state of the sources."""

    file: Path

    @staticmethod
    def of(folder: Path, source: str) -> State:
        return State(folder / f"{source[:16]}.jsonl")

    def load(self) -> dict[str, Result]:
        """The last result of each model; a torn or foreign line is passed over."""
        try:
            lines = self.file.read_text(encoding="utf-8").splitlines()
        except OSError:
            return {}
        return {result.model: result for result in _parsed(lines)}

    def append(self, result: Result) -> None:
        """Add a result, whole even where other shards write at the same time."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        line = (json.dumps(result.to_dict()) + "\n").encode()
        target = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(target, line)
        finally:
            os.close(target)

    def clear(self) -> None:
        self.file.unlink(missing_ok=True)


def shard(names: Sequence[str], index: int, count: int) -> list[str]:
    """Every ``count``-th name from the ``index``-th on, counted from 1."""
    return list(names[index - 1 :: count])


def run_zoo(
    names: Sequence[str],
    models: Mapping[str, Listed],
    state: State,
    job: Job,
    *,
    jobs: int = 1,
    seconds: float | None = None,
    limit: float = LIMIT,
    say: Say = print,
) -> bool:
    """Measure those of ``names`` that aren't done; False where time ran out first.

    ``job`` returns a :class:`Result`'s fields. With ``seconds``, no model is started after that long.
    """
    done = {name for name, result in state.load().items() if result.done}
    pending = [name for name in names if name not in done]
    until = None if seconds is None else time.monotonic() + seconds
    say(f"{len(names)} models, {len(names) - len(pending)} done before")
    ended = 0
    for end in run_forked(pending, job, state.file.parent / "logs", limit=limit, jobs=jobs, until=until):
        known = models[end.name]
        if end.fields is not None:
            result = Result.from_dict(end.fields)
        else:
            result = lost(end.name, known.family, known.sites, end.outcome, end.detail, round(end.seconds, 1))
        state.append(result)
        ended += 1
        say(f"{ended:4}/{len(pending)} {describe(result)}")
    return ended == len(pending)


def describe(result: Result) -> str:
    """One line on a model, loud where something is wrong with it."""
    parts = [f"{result.model}: {result.fused}/{result.sites} fused, {result.seconds:.0f} s"]
    if result.outcome != "measured":
        parts.append(f"{result.outcome.upper()} {result.left[0].reason[:160]}")
    elif result.left:
        parts.append(", ".join(f"{left.sites} {left.code}" for left in result.left))
    if result.sites != result.listed:
        parts.append(f"COUNT DIFFERS: {result.sites} attentions, the list says {result.listed}")
    if result.right is False:
        parts.append(f"WRONG {result.verdict}")
    return "; ".join(parts)


def _parsed(lines: Sequence[str]) -> Iterator[Result]:
    for line in lines:
        try:
            yield Result.from_dict(json.loads(line))
        except (ValueError, TypeError, AttributeError):
            continue
