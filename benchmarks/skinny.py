"""Linear layers of few rows: ``attnc::skinny_linear`` against ``torch.nn.functional.linear``, and what memory allows.

Weights come from memory in every run: what is read before it is larger than any cache. The bound is the time a sum of
the same bytes takes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional

from attnc.runtime import skinny
from benchmarks.timing import Timing, interleaved

ROWS = (1, 2, 4, 8, 16)
SHAPES = ("262144x640", "2048x640", "640x2048")
"""Output and input features: Gemma-3-270M's vocabulary and feed-forward layers."""
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
CACHE = 64 << 20
"""Bytes read before each run."""


@dataclass(frozen=True)
class Case:
    """Weights of one shape and dtype."""

    features: int
    depth: int
    dtype: str

    @property
    def bytes(self) -> int:
        return self.features * self.depth * DTYPES[self.dtype].itemsize

    def __str__(self) -> str:
        return f"{self.features}x{self.depth} {self.dtype}"


def measure(case: Case, rows: Sequence[int], runs: int) -> dict[str, Timing]:
    """The times of ``read`` and, for each number of rows, of ``ours M`` and ``library M``, which take turns."""
    weight = torch.randn(case.features, case.depth).to(DTYPES[case.dtype])
    packed, cache = skinny.pack(weight), torch.ones(CACHE // 4)
    whole = weight.flatten()[: weight.numel() // 2 * 2].view(torch.float32)  # pairs of bf16 are floats to a sum
    timed: dict[str, Callable[[], object]] = {"read": whole.sum}
    for m in rows:
        x = torch.randn(m, case.depth).to(weight.dtype)
        timed[f"ours {m}"] = lambda x=x: skinny.linear(x, packed)  # type: ignore[misc]
        timed[f"library {m}"] = lambda x=x: functional.linear(x, weight)  # type: ignore[misc]
    contenders: dict[str, Callable[[], object]] = {}
    for name, run in timed.items():
        contenders |= {f"before {name}": cache.sum, name: run}
    with torch.no_grad():
        return {name: timing for name, timing in interleaved(contenders, runs).items() if name in timed}


def show(case: Case, rows: Sequence[int], times: dict[str, Timing]) -> Table:
    """Medians in ms, the ratio of the two, and the share of the bytes a second that the sum reads."""
    read = times["read"]
    title = f"{case}: {case.bytes / 1e6:.0f} MB, read in {read.ms:.2f} ms ({case.bytes / read.median / 1e9:.1f} GB/s)"
    table = Table("M", "ours ms", "library ms", "library / ours", "of the read's speed", title=title)
    for m in rows:
        ours, library = times[f"ours {m}"], times[f"library {m}"]
        ratio, share = library.median / ours.median, read.median / ours.median
        table.add_row(str(m), f"{ours.ms:.2f}", f"{library.ms:.2f}", f"{ratio:.2f}", f"{share:.0%}")
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.skinny", description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="NxK")
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS)
    parser.add_argument("--runs", type=int, default=7)
    wanted = parser.parse_args()
    if not skinny.available():
        parser.exit(1, "attnc::skinny_linear has no kernel here: `attnc doctor` says why\n")
    console = Console()
    console.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; medians of {wanted.runs} rounds")
    for shape in wanted.shapes:
        features, depth = map(int, shape.split("x"))
        for dtype in wanted.dtypes:
            case = Case(features, depth, dtype)
            console.print(show(case, wanted.rows, measure(case, wanted.rows, wanted.runs)))


if __name__ == "__main__":
    main()
