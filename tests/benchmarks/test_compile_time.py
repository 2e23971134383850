"""The compile-time benchmark: layers that are alike share a plan and a kernel, and runs are summed up honestly."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.compile_time import capture, heading, passes_seconds, run_passes, show, summary

STEPS = (
    "import",
    "canonicalize",
    "distribute",
    "fuse-attention",
    "clean-up",
    "fold-layout",
    "rotary",
    "bias",
    "choose-strategy",
)


def test_layers_that_are_alike_share_one_kernel() -> None:
    counts, seconds = run_passes(capture(layers=2))
    assert (counts.sites, counts.fused, counts.ropes) == (2, 2, 4)
    assert (counts.plans, counts.kernels) == (1, 1)
    assert tuple(seconds) == STEPS
    assert all(spent > 0 for spent in seconds.values())


def run(fused: int = 3, **seconds: float) -> dict[str, Any]:
    counts = {"sites": 3, "fused": fused, "ropes": 6, "plans": 1, "kernels": 1}
    return {"counts": counts, "seconds": {"import": 10.0, **seconds}}


def test_the_median_counts_and_the_import_does_not() -> None:
    measured = summary([run(a=1.0, b=5.0), run(a=2.0, b=1.0), run(a=9.0, b=3.0)])
    assert (measured.passes["a"].median, measured.passes["b"].median) == (2.0, 3.0)
    assert (measured.total.low, measured.total.median, measured.total.high) == (3.0, 6.0, 12.0)
    assert measured.imported.median == 10.0
    assert heading(measured) == "3/3 attentions fused, 6 rotations proved, plans: 1, kernels: 1; runs: 3"
    assert show(measured).row_count == 4


def test_runs_that_differ_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="runs differ"):
        summary([run(a=1.0), run(fused=2, a=1.0)])


def test_no_run_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        passes_seconds(layers=1, repeats=0)
