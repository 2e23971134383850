"""The intermediate representation: typed SSA graphs, attention as algebra, and their text.

Abbreviations used throughout: q, k, v (query, key, value), b (batch), h (head), m, n (rows and columns of a tile),
d (head dimension), lse (log-sum-exp). Formulas have fronts of their own: ``ir.index``, ``ir.score``, ``ir.mask``.
"""

from __future__ import annotations

from attnc.ir.attention import AttentionSpec, Fill
from attnc.ir.diagnostics import AttncError, Diagnostic, ParseError, PrintError, VerifyError
from attnc.ir.equality import difference, equal
from attnc.ir.graph import Graph, SizeInfo
from attnc.ir.parser import parse_graph
from attnc.ir.printer import print_graph, print_op
from attnc.ir.rewriter import Rewriter
from attnc.ir.types import (
    Dim,
    DType,
    NoneType,
    OpaqueType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    size,
)
from attnc.ir.values import Arg, Literal, Location, Op, Value
from attnc.ir.verifier import verify

__all__ = [
    "Arg",
    "AttentionSpec",
    "AttncError",
    "DType",
    "Diagnostic",
    "Dim",
    "Fill",
    "Graph",
    "Literal",
    "Location",
    "NoneType",
    "Op",
    "OpaqueType",
    "ParseError",
    "PrintError",
    "Rewriter",
    "ScalarType",
    "SizeInfo",
    "TensorType",
    "TupleType",
    "Type",
    "Value",
    "VerifyError",
    "difference",
    "equal",
    "parse_graph",
    "print_graph",
    "print_op",
    "size",
    "verify",
]
