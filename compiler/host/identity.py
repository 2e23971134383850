"""A Dynamo backend that captures, imports, exports and finishes, and changes nothing: the host pipeline by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from attnc.compiler.frontends.torch import import_graph
from attnc.compiler.host.hosts import Host
from attnc.compiler.host.pipeline import Captured, finish, prepare
from attnc.compiler.host.to_fx import export_graph
from attnc.ir.graph import Graph


def identity_backend(
    host: Host = "aten",
    seen: list[Captured] | None = None,
    visit: Callable[[torch.fx.GraphModule, Graph, torch.fx.GraphModule], None] | None = None,
) -> Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]:
    """A ``torch.compile`` backend. ``seen`` collects the captures; ``visit`` gets each graph, its IR, and it again."""

    def backend(gm: torch.fx.GraphModule, args: Sequence[Any]) -> Callable[..., Any]:
        captured = prepare(gm, args)
        if seen is not None:
            seen.append(captured)
        if captured.graph_module is None:
            return finish(captured, None, args, host)
        graph = import_graph(captured.graph_module)
        back = export_graph(graph)
        if visit is not None:
            visit(captured.graph_module, graph, back)
        return finish(captured, back, args, host)

    return backend
