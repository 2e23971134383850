"""Compile time: a Llama of many layers through attnc's passes, on one thread, without tracing and the C++ compiler.

Every run is a process of its own, forked once the model is captured. So what attnc remembers from one graph to the next
is empty, as in a user's first compile.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from attnc.compiler.frontends.torch.importer import import_graph
from attnc.compiler.hints import size_hints, user_names
from attnc.compiler.host.exported import capture_exported
from attnc.compiler.passes.base import Context
from attnc.compiler.passes.pipeline import run_pipeline
from attnc.models.layers import seeded
from attnc.models.llama import TINY, Llama
from benchmarks.coverage.fork import run_forked
from benchmarks.timing import Timing

LIMIT = 300.0
"""Seconds after which a run is stopped."""


@dataclass(frozen=True)
class Counts:
    """What the passes made of one graph."""

    sites: int
    fused: int
    ropes: int
    plans: int
    """Distinct kernel plans that the attentions of the graph name."""
    kernels: int
    """Kernels emitted."""


@dataclass(frozen=True)
class CompileTime:
    """Counts, and times over all runs: the ``import`` into the IR, each pass by name, and ``total`` of the passes."""

    counts: Counts
    imported: Timing
    passes: dict[str, Timing]
    total: Timing


def capture(layers: int) -> torch.fx.GraphModule:
    """The graph of a narrow Llama, batch and length symbolic: grouped heads, rotary positions, padding, causal mask."""
    model = seeded(Llama(dataclasses.replace(TINY, layers=layers)))
    batch, length = torch.export.Dim("B", min=2, max=64), torch.export.Dim("S", min=2, max=4096)
    inputs = model.example_inputs(batch=2, length=17)
    shapes = {name: {0: batch, 1: length} for name in inputs}
    program = torch.export.export(model, (), inputs, dynamic_shapes=shapes, strict=False)
    return capture_exported(program).graph_module


def run_passes(module: torch.fx.GraphModule) -> tuple[Counts, dict[str, float]]:
    """Import a captured graph and run the pipeline once: what came of it, and seconds by step."""
    start = time.perf_counter()
    graph = import_graph(module, name="llama")
    imported = time.perf_counter() - start
    context = Context(hints=size_hints(graph), user_names=user_names(graph))
    seconds = run_pipeline(graph, context)
    plans = {op.meta["plan"] for op in graph.ops if op.name == "attn.attention"}
    fused = sum(site.fused for site in context.sites)
    counts = Counts(len(context.sites), fused, len(context.ropes), len(plans), len(context.kernels))
    return counts, {"import": imported, **seconds}


def passes_seconds(layers: int = 32, repeats: int = 5) -> CompileTime:
    """Counts and times of ``repeats`` runs. Sets torch to one thread.

    Raises ValueError for fewer than one run, RuntimeError where a run fails or two runs differ in what they made.
    """
    if repeats < 1:
        raise ValueError(f"compile time needs at least one run, not {repeats}")
    torch.set_num_threads(1)
    module = capture(layers)

    def job(_: str) -> dict[str, Any]:
        counts, seconds = run_passes(module)
        return {"counts": dataclasses.asdict(counts), "seconds": seconds}

    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for end in run_forked([f"run-{i}" for i in range(repeats)], job, Path(folder), limit=LIMIT):
            if end.fields is None:
                raise RuntimeError(f"compile time: {end.name} {end.outcome}:\n{end.detail}")
            runs.append(end.fields)
    return summary(runs)


def summary(runs: Sequence[dict[str, Any]]) -> CompileTime:
    """Median, fastest and slowest by step. Raises RuntimeError where two runs made different things."""
    if any(run["counts"] != runs[0]["counts"] for run in runs):
        raise RuntimeError(f"compile time: runs differ: {[run['counts'] for run in runs]}")
    seconds = [run["seconds"] for run in runs]
    times = {step: _timing([s[step] for s in seconds]) for step in seconds[0]}
    imported = times.pop("import")
    total = _timing([sum(s.values()) - s["import"] for s in seconds])
    return CompileTime(Counts(**runs[0]["counts"]), imported, times, total)


def _timing(seconds: Sequence[float]) -> Timing:
    return Timing(statistics.median(seconds), min(seconds), max(seconds), len(seconds))


def heading(measured: CompileTime) -> str:
    """What the passes made of the graph, as one line."""
    c = measured.counts
    return (
        f"{c.fused}/{c.sites} attentions fused, {c.ropes} rotations proved, plans: {c.plans}, kernels: {c.kernels}; "
        f"runs: {measured.total.runs}"
    )


def show(measured: CompileTime) -> Table:
    """The times as a table; a spread is (slowest - fastest) / median."""
    table = Table("step", "median s", "fastest s", "slowest s", "spread")
    steps = {"import": measured.imported, **measured.passes, "all passes": measured.total}
    for name, timing in steps.items():
        table.add_row(name, *(f"{s:.3f}" for s in (timing.median, timing.low, timing.high)), f"{timing.spread:.0%}")
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time", description=__doc__)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    measured = passes_seconds(chosen.layers, chosen.repeats)
    console = Console()
    console.print(f"Llama of {chosen.layers} layers: {heading(measured)}")
    console.print(show(measured))


if __name__ == "__main__":
    main()
