"""Remove what says nothing: ops that are the identity in every program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnc.compiler.fuse.pointwise import is_identity_dropout
from attnc.compiler.passes.base import Context
from attnc.ir.graph import Graph
from attnc.ir.values import Op, Value


@dataclass(frozen=True)
class Canonicalize:
    """1. Dropout with p = 0 or outside training becomes its input.
    2. Metadata assertions, which no result depends on, go.
    """

    name: ClassVar[str] = "canonicalize"

    def run(self, graph: Graph, context: Context) -> bool:
        changed = False
        for op in list(graph.ops):
            if op.name == "aten._assert_tensor_metadata.default":
                graph.erase(op)
                changed = True
            elif op.name == "aten.dropout.default" and is_identity_dropout(op):
                _forward(graph, op)
                changed = True
        return changed


def _forward(graph: Graph, op: Op) -> None:
    source = op.args[0]
    if isinstance(source, Value) and source.type == op.result.type:
        graph.replace_uses(op.result, source)
        graph.erase(op)
