"""THE pipeline: one visible tuple, run top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable

from attnc.compiler.passes.base import Context, Pass
from attnc.compiler.passes.bias import Bias
from attnc.compiler.passes.canonicalize import Canonicalize
from attnc.compiler.passes.choose_strategy import ChooseStrategy
from attnc.compiler.passes.clean_up import CleanUp
from attnc.compiler.passes.distribute import Distribute
from attnc.compiler.passes.fold_layout import FoldLayout
from attnc.compiler.passes.fuse_attention import FuseAttention
from attnc.compiler.passes.rotary import Rotary
from attnc.ir.graph import Graph
from attnc.ir.verifier import verify

PIPELINE: tuple[Pass, ...] = (
    Canonicalize(),
    Distribute(),
    FuseAttention(),
    CleanUp(),
    FoldLayout(),
    Rotary(),
    Bias(),
    ChooseStrategy(),
    CleanUp(),
)

After = Callable[[int, Pass, Graph], None]
"""Called after each pass with its position, the pass and the graph."""


def passes_by_name(names: list[str]) -> tuple[Pass, ...]:
    """The passes of the given names, in the given order. Raises ValueError for a name that isn't one."""
    known = {p.name: p for p in PIPELINE}
    for name in names:
        if name not in known:
            raise ValueError(f"no pass {name!r}; passes are {', '.join(known)}")
    return tuple(known[name] for name in names)


def run_pipeline(
    graph: Graph,
    context: Context,
    *,
    passes: tuple[Pass, ...] = PIPELINE,
    after: After | None = None,
    check: bool = False,
) -> dict[str, float]:
    """Run ``passes`` over ``graph`` in place; ``check`` verifies the IR before the first and after each.

    Returns the seconds each pass took. Raises VerifyError where ``check`` finds a broken graph.
    """
    seconds: dict[str, float] = {}
    if check:
        verify(graph)
    for position, step in enumerate(passes):
        start = time.perf_counter()
        step.run(graph, context)
        seconds[step.name] = seconds.get(step.name, 0.0) + time.perf_counter() - start
        if check:
            verify(graph)
        if after is not None:
            after(position, step, graph)
    return seconds
