"""The model zoo as a check: measured in parts, then judged as a whole.

Every figure is :mod:`benchmarks.coverage`'s. Parts and verdict share its state, so what a part has measured is kept.
"""

from __future__ import annotations

from benchmarks.accept.runner import ROOT, source_digest
from benchmarks.coverage.exceptions import CONTENT, UNROTATED
from benchmarks.coverage.record import write_record
from benchmarks.coverage.results import NOT_REPORTED, Result, listed
from benchmarks.coverage.runner import State, run_zoo, shard
from benchmarks.coverage.tally import complaints, total

SHARE = 0.95
"""Least share of fused attentions."""
SECONDS = 480.0
"""No model is started after that long in a part."""


def part(index: str, count: str) -> dict[str, object]:
    """Measure one part of the zoo. Raises AssertionError where time ran out; another run goes on from there."""
    from benchmarks.coverage.server import job, prepare

    models = listed()
    names = shard(list(models), int(index), int(count))
    prepare()
    finished = run_zoo(names, models, _state(), job(models), seconds=SECONDS)
    assert finished, "time is up; run it again to go on from here"
    return {"models": len(names)}


def verdict() -> dict[str, object]:
    """Judge the whole zoo and write docs/coverage.*. Raises AssertionError with what is wrong."""
    models, done = listed(), _state().load()
    missing = [name for name in models if name not in done]
    assert not missing, f"not measured: {', '.join(missing)}"
    results = [done[name] for name in models]
    write_record(results, ROOT / "docs")
    row, found = total(results), complaints(results)
    wrong = {
        "ended": found.ended,
        "wrong": found.wrong,
        "counts differ from the list": found.differing,
        "reports and profiler disagree": found.misreported,
        "left without a reason": [r.model for r in results if any(_unexplained(r))],
        "rotary, but no attn.rope": _beyond(found.unrotated, UNROTATED),
        "relative, but a dense bias": _beyond(found.dense, CONTENT),
        "an exception that is none": [m for m in UNROTATED if m not in found.unrotated]
        + [m for m in CONTENT if m not in found.dense],
    }
    assert not any(wrong.values()), "; ".join(f"{what}: {', '.join(names)}" for what, names in wrong.items() if names)
    assert row.share >= SHARE, f"{row.fused} of {row.sites} fused"
    return {
        "models": row.models,
        "sites": row.sites,
        "fused": row.fused,
        "left": dict(row.left.most_common()),
        "rotary": sum(result.rotations > 0 for result in results),
        "relative": sum(result.relative for result in results),
        "not judged": len(found.unjudged),
    }


def _state() -> State:
    return State.of(ROOT / "build" / "coverage", source_digest())


def _unexplained(result: Result) -> list[str]:
    return [left.code for left in result.left if left.code == NOT_REPORTED or not left.reason]


def _beyond(names: list[str], known: dict[str, str]) -> list[str]:
    return [name for name in names if name not in known]
