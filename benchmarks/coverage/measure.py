"""Measures one model: attentions it has, attentions that ran fused, what is left and why, and whether it is right."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from benchmarks.coverage.attribution import attribute, downgrades
from benchmarks.coverage.compare import Judged, judge_all, run, run_skewed, run_wide
from benchmarks.coverage.exceptions import CAPTURED
from benchmarks.coverage.positions import count_positions
from benchmarks.coverage.results import Result
from benchmarks.coverage.truth import Truth, count_sites
from benchmarks.coverage.watch import Break, Watched, first_line

FUSED, NATIVE = "attnc::attention", "aten::scaled_dot_product_attention"
"""Operators as the profiler names them."""
TRIES = 3


def measure(name: str, family: str, listed: int) -> Result:
    """Build and measure a model type of the zoo; see :func:`measure_model`."""
    from benchmarks.coverage.zoo import build

    entry = build(name)
    on = name in CAPTURED
    with torch._dynamo.config.patch(capture_scalar_outputs=on, capture_dynamic_output_shape_ops=on):
        result = measure_model(entry.model, entry.inputs, name, family, listed)
    return replace(result, captured=on)


def measure_model(model: nn.Module, inputs: Mapping[str, Any], name: str, family: str, listed: int) -> Result:
    """Measure a model on these inputs. Raises what the model raises, compiled or not."""
    start = time.perf_counter()
    truth, eager = count_sites(model, inputs), run(model, inputs)
    positions = count_positions(model, inputs)
    torch._dynamo.reset()
    counters.clear()
    watched = Watched()
    compiled = torch.compile(model, backend=watched)
    ours = run(compiled, inputs)
    judged, blind = _judge(model, inputs, ours, eager)
    breaks = _breaks(watched)
    calls = _operator_calls(compiled, inputs, watched)
    ropes = sum(graph.runs * len(graph.report.ropes) for graph in watched.graphs)
    found = attribute(truth, _without_native(calls, truth), watched.graphs, breaks)
    return Result(
        name,
        family,
        "measured",
        listed,
        truth.sites,
        fused=found.fused,
        left=found.left,
        beyond=found.beyond,
        native=truth.native,
        reported=sum(graph.runs * graph.report.fused for graph in watched.graphs),
        ran=calls[FUSED],
        rotations=positions.rotations,
        ropes=ropes,
        relative=positions.relative,
        downgrades=downgrades(watched.graphs),
        graphs=len(watched.graphs),
        breaks=tuple(map(str, breaks)),
        right=judged.right,
        verdict=judged.text,
        blind=blind,
        seconds=round(time.perf_counter() - start, 1),
    )


def _judge(
    model: nn.Module, inputs: Mapping[str, Any], ours: Sequence[Tensor], eager: Sequence[Tensor]
) -> tuple[Judged, bool]:
    """The verdict, and whether a planted error would have passed too."""
    try:
        reference = run_wide(model, inputs)
    except Exception as error:  # a model that can't run in float64 is measured all the same, and listed
        return Judged(None, f"no float64 reference: {type(error).__name__}: {first_line(error)}"), False
    blind = judge_all(run_skewed(model, inputs), eager, reference).right is True
    return judge_all(ours, eager, reference), blind


def _breaks(watched: Watched) -> list[Break]:
    """Graph breaks, those with a place first; one before a graph's first operator has none.

    Dynamo doesn't count a break in a loop as one: it gives up the whole frame, and only says what it can't do.
    """
    placed = [graph.cut for graph in watched.graphs if graph.cut]
    known = {cut.reason for cut in placed}
    counted = counters["graph_break"] or counters["unimplemented"]
    others = [Break(reason) for reason in map(first_line, counted) if reason not in known]
    return list(dict.fromkeys(placed + others))


def _without_native(calls: Mapping[str, int], truth: Truth) -> int:
    """Attentions that ran fused, less those that the model wrote as SDPA: fewer SDPA calls than in eager."""
    return calls[FUSED] - max(0, truth.native - calls[NATIVE])


def _operator_calls(compiled: Callable[..., Any], inputs: Mapping[str, Any], watched: Watched) -> Counter[str]:
    """Operators by name in a forward during which nothing is compiled."""
    for _ in range(TRIES):
        known = len(watched.graphs)
        watched.rewind()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            run(compiled, inputs)
        if len(watched.graphs) == known:
            break
    return Counter(event.name for event in profile.events())
