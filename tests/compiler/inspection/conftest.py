"""Small graphs with attention, and dumps of them that build no kernel."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from attnc.compiler.dump import Dump
from attnc.compiler.passes.base import Context
from attnc.compiler.passes.pipeline import run_pipeline
from attnc.compiler.report import Report
from attnc.ir import Graph, parse_graph, verify

LAYER = """
  %{i}t: f32[2, 4, 8, S] strides(32*S, 8*S, 1, 8) = aten.transpose.int(%{x}, 2, 3)
  %{i}s: f32[2, 4, S, S] = aten.matmul.default(%{x}, %{i}t){at}
  %{i}c: f32[2, 4, S, S] = aten.mul.Tensor(%{i}s, 0.25){at}
  %{i}m: f32[2, 4, S, S] = aten.masked_fill.Scalar(%{i}c, %hidden, -inf){at}
  %{i}p: f32[2, 4, S, S] = aten.softmax.int(%{i}m, -1){at}
  %{i}o: f32[2, 4, S, 8] = aten.matmul.default(%{i}p, %v){at}
  %{i}y: f32[2, 4, S, 8] = aten.tanh.default(%{i}o){at}
"""


def model_text(layers: int = 2, *, window: int = 0, code: str = "p = softmax(scores)", name: str = "g") -> str:
    """A graph of self-attention layers with a causal mask, or one of ``window`` keys, over length S."""
    lines = ["  %row: i64[S] = aten.arange.default(%n)", "  %q: i64[S, 1] = aten.unsqueeze.default(%row, 1)"]
    lines += ["  %k: i64[1, S] = aten.unsqueeze.default(%row, 0)"]
    if window:
        lines += ["  %far: b1[S, S] = aten.le.Tensor(%k, %start)"]
        lines.insert(-1, f"  %start: i64[S, 1] = aten.sub.Tensor(%q, {window})")
        lines += ["  %late: b1[S, S] = aten.gt.Tensor(%k, %q)"]
        lines += ["  %hidden: b1[S, S] = aten.logical_or.default(%late, %far)"]
    else:
        lines += ["  %hidden: b1[S, S] = aten.gt.Tensor(%k, %q)"]
    x = "x"
    for i in range(layers):
        at = f'  loc("model.py":{10 + i} "{code}" in "layers.{i}")'
        lines.append(LAYER.format(i=f"l{i}", x=x, at=at).strip("\n"))
        x = f"l{i}y"
    head = f"graph @{name}(%x: f32[2, 4, S, 8], %v: f32[2, 4, S, 8], %n: int<S>) sizes(S in [1, inf]) {{"
    return "\n".join([head, *lines, f"  return %{x}", "}"]) + "\n"


def read(text: str) -> Graph:
    graph = parse_graph(textwrap.dedent(text))
    verify(graph)
    return graph


def dump(graph: Graph, folder: Path, hints: dict[str, int], *, finish: bool = True) -> Report:
    """The passes over a graph, dumped as the driver does it, without building a kernel."""
    context = Context(hints=hints)
    written = Dump(folder)
    written.graph(graph)
    run_pipeline(graph, context, after=written.after)
    report = Report(graph.name, "aten", sites=context.sites, notes=context.notes, seconds={"fuse-attention": 0.5})
    if finish:
        written.finish(context, report)
    return report


@pytest.fixture
def model() -> Callable[..., str]:
    return model_text


@pytest.fixture
def dumped() -> Callable[..., Report]:
    return dump


@pytest.fixture
def parsed() -> Callable[[str], Graph]:
    return read
