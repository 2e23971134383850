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
    3. Equal exponentials become one: a softmax written out may compute its own twice.
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
        return _merge_exponentials(graph) or changed


def _merge_exponentials(graph: Graph) -> bool:
    """Results of the graph stay tensors of their own, and so does what is computed where gradients are off."""
    if any(op.name == "torch.set_grad_enabled" for op in graph.ops):
        return False
    first: dict[Value, Op] = {}
    changed = False
    for op in [op for op in graph.ops if op.name == "aten.exp.default" and op.result not in graph.outputs]:
        kept = first.setdefault(op.operands[0], op)
        if kept is not op:
            graph.replace_uses(op.result, kept.result)
            graph.erase(op)
            changed = True
    return changed


def _forward(graph: Graph, op: Op) -> None:
    source = op.args[0]
    if isinstance(source, Value) and source.type == op.result.type:
        graph.replace_uses(op.result, source)
        graph.erase(op)
