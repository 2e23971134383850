"""Timing on a machine that does other things too: contenders take turns, the median of each counts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds of one contender: the median, and the spread from the fastest to the slowest run."""

    median: float
    low: float
    high: float
    runs: int

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median."""
        return (self.high - self.low) / self.median

    @property
    def ms(self) -> float:
        return 1000 * self.median


def interleaved(contenders: Mapping[str, Callable[[], object]], runs: int = 5, warmup: int = 1) -> dict[str, Timing]:
    """Time each contender ``runs`` times, one after the other in every round.

    Rounds put a slow spell of the machine on all contenders alike. Raises ValueError for fewer than one run.
    """
    if runs < 1:
        raise ValueError(f"timing needs at least one run, not {runs}")
    for _ in range(warmup):
        for run in contenders.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(runs):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: Timing(statistics.median(s), min(s), max(s), runs) for name, s in seconds.items()}
