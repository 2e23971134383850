"""How a model with a past begins: without one it must say what the graph of its steps says.

A step is traced with two earlier tokens or more, as torch.export counts. What a model does otherwise on an empty cache
isn't in that graph, so the two are run beside each other once.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from attnc.compiler.derive.past.held import Kept, ids, logits_of, others
from attnc.compiler.derive.past.roles import ModelCache
from attnc.compiler.derive.past.wrapper import NEW, REQUESTS, Layout, long
from attnc.compiler.derive.refusal import CACHE, INPUT, NotDerivable
from attnc.compiler.interpreter import Interpreter
from attnc.ir.graph import Graph


def check_start(
    kept: Kept, cache: ModelCache, layout: Layout, graph: Graph, tokens: str, state: Mapping[str, Tensor]
) -> None:
    """Run a model on an empty cache, and the graph without a past. Raises NotDerivable where they differ."""
    given = ids(REQUESTS, NEW)
    past = [long(x, place, 0) for x, place in zip(kept.examples, layout.grows, strict=True)]
    with torch.no_grad():
        try:
            output, _ = kept.run(past, {tokens: given, **others(cache, REQUESTS, 0, NEW)})
        except Exception as error:
            raise NotDerivable(INPUT, f"the model can't be run on an empty cache: {error}") from error
        (found,) = Interpreter(graph).run([state.get(value.name, given) for value in graph.inputs])
    wanted = logits_of(output)
    bound = torch.finfo(wanted.dtype).eps ** 0.5 * wanted.abs().max()
    if wanted.shape != found.shape or not bool(((wanted - found).abs() <= bound).all()):
        raise NotDerivable(CACHE, "on an empty cache the model gives other results than its steps with a past do")
