"""Let an attention's reader have the layout the kernel already writes.

The rewrite chose the order of the kernel's output axes for its reader; what is left of the reader's own layout ops is
the identity, and goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnc.compiler.fuse.layout import PERMUTES, VIEWS, permutation, tensor_type
from attnc.compiler.passes.base import Context
from attnc.ir.graph import Graph
from attnc.ir.values import Literal, Op, Value

COPIES = ("aten.clone.default", "aten.contiguous.default")
CONTIGUOUS = ("contiguous_format", "preserve_format")


@dataclass(frozen=True)
class FoldLayout:
    """1. Two permutations in a row that undo each other are their input.
    2. A contiguous copy of an attention's result that nobody else reads is the result.
    """

    name: ClassVar[str] = "fold-layout"

    def run(self, graph: Graph, context: Context) -> bool:
        changed = False
        for op in list(graph.ops):
            source = _undone_permutation(op) or _needless_copy(graph, op)
            if source is not None:
                inner = op.operands[0].op
                graph.replace_uses(op.result, source)
                graph.erase(op)
                if inner is not None and inner.name in PERMUTES and not _is_read(graph, inner):
                    graph.erase(inner)  # else the copy after it would see two readers
                changed = True
        return changed


def _is_read(graph: Graph, op: Op) -> bool:
    return bool(op.result.uses) or op.result in graph.output_values()


def _undone_permutation(op: Op) -> Value | None:
    """The input of the first of two permutations that cancel."""
    if op.name not in PERMUTES:
        return None
    inner = op.operands[0].op
    if inner is None or inner.name not in PERMUTES:
        return None
    rank = tensor_type(op.result).rank
    first, second = permutation(inner, rank), permutation(op, rank)
    return inner.operands[0] if [first[i] for i in second] == list(range(rank)) else None


def _needless_copy(graph: Graph, op: Op) -> Value | None:
    """The input of a copy, where it is an attention's result or a view of it, read by the copy alone."""
    if op.name not in COPIES or not _makes_contiguous(op):
        return None
    source = op.operands[0]
    value = source
    while len(value.users) == 1 and value not in graph.output_values() and value.op is not None:
        if value.op.name == "attn.attention":
            return source
        if value.op.name not in VIEWS:
            return None
        value = value.op.operands[0]
    return None


def _makes_contiguous(op: Op) -> bool:
    wanted = op.arg(1, "memory_format") if op.name == "aten.contiguous.default" else op.kwargs.get("memory_format")
    return wanted is None or (isinstance(wanted, Literal) and wanted.text in CONTIGUOUS)
