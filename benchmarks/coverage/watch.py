"""A backend that passes every graph on to attnc and remembers its report and how often the graph ran."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

import attnc
from attnc.compiler.backend import backend
from attnc.compiler.report import Report

_INSTALLED = re.compile(r"[^\s()]*/site-packages/")


class Break(NamedTuple):
    """Why Dynamo ended a graph, and the ``file:line`` at which it went on in Python, if known."""

    reason: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.where})" if self.where else self.reason


@dataclass
class Graph:
    """One compiled graph."""

    report: Report
    cut: Break | None = None
    """The graph break that ends it, if one does."""
    runs: int = 0


class Watched:
    """A ``torch.compile`` backend: attnc on the ATen host. ``graphs`` are in the order of their compilation."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self._inner = backend(host="aten")

    def __call__(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile a graph of Dynamo's."""
        run = self._inner(module, inputs)
        graph = Graph(attnc.reports()[-1], _cut(module))
        self.graphs.append(graph)

        def counted(*args: Any) -> Any:
            graph.runs += 1
            return run(*args)

        return counted

    def rewind(self) -> None:
        """Count runs from zero."""
        for graph in self.graphs:
            graph.runs = 0


def _cut(module: torch.fx.GraphModule) -> Break | None:
    why = getattr(module, "compile_subgraph_reason", None)
    if why is None or not why.graph_break:
        return None
    frame = why.user_stack[-1] if why.user_stack else None
    return Break(first_line(why.reason), shortened(f"{frame.filename}:{frame.lineno}") if frame else "")


def shortened(text: str) -> str:
    """A text without the folder of this machine's installed packages."""
    return _INSTALLED.sub("", text)


def first_line(text: object) -> str:
    """The first line of a message, cut where it's long."""
    lines = str(text).strip().splitlines()
    return lines[0][:160] if lines else ""
