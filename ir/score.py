"""Score formulas: what is done to Q·K before the softmax, as a typed DAG (the front of ``score_*``)."""

from __future__ import annotations

from attnc.ir.score_eval import evaluate
from attnc.ir.score_nodes import (
    Node,
    binary,
    cast,
    compare,
    const,
    index,
    load,
    logical,
    promote,
    qk,
    unary,
    where,
)
from attnc.ir.score_rewrite import (
    axes_of,
    index_exprs,
    rename_loads,
    side_names,
    simplify,
    sizes_of,
    substitute,
    substitute_index,
    uses_qk,
    walk,
)
from attnc.ir.score_text import parse, show

__all__ = [
    "Node",
    "axes_of",
    "binary",
    "cast",
    "compare",
    "const",
    "evaluate",
    "index",
    "index_exprs",
    "load",
    "logical",
    "parse",
    "promote",
    "qk",
    "rename_loads",
    "show",
    "side_names",
    "simplify",
    "sizes_of",
    "substitute",
    "substitute_index",
    "unary",
    "uses_qk",
    "walk",
    "where",
]
