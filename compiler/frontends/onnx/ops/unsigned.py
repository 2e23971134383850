"""Arithmetic of unsigned integers of 16, 32 and 64 bits, which torch stores but doesn't compute with.

The short ones are computed in int64 and cut to their width. Those of 64 bits are the same bits as int64: sums, products
and equality are the same; order is that of int64 once the highest bit is turned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from attnc.compiler.frontends.onnx.dtypes import STORED_ONLY
from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.known import Constant, Value
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.table import Entry, Form

_HIGHEST = -(2**63)
_SHORT = (torch.uint16, torch.uint32)
_COMPARISONS = frozenset({"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "BitShift", *_COMPARISONS})
_BITS = frozenset({"BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"})


def entry_for(node: Node, inputs: Sequence[Value], entry: Entry) -> Entry:
    """The entry itself, or one for inputs of types torch only stores. Raises NoForm where there is none."""
    rare = [v.dtype for v in inputs if isinstance(v, Tensor | Constant) and v.dtype in STORED_ONLY]
    if not rare:
        return entry
    known = not node.domain and node.op in _ARITHMETIC | _BITS
    if known and all(dtype in _SHORT for dtype in rare):
        return Entry(_short(entry.form, rare[0]), entry.since, entry.until, frozenset(), stored=True)
    if known and all(dtype == torch.uint64 for dtype in rare) and node.op in _LONG:
        return Entry(_long(_LONG[node.op]), entry.since, entry.until, frozenset(), stored=True)
    raise NoForm(f"torch doesn't compute with {str(rare[0]).removeprefix('torch.')}")


def _short(form: Form, dtype: torch.dtype) -> Form:
    """``form`` in int64, cut to the type's width."""

    def widened(node: Node, *values: Tensor) -> Tensor:
        if any(value.dtype != dtype for value in values):
            raise NoForm("operands of several types")
        made: Tensor = form(node, *(value.to(torch.int64) for value in values))
        return made if made.dtype == torch.bool else made.to(dtype)

    return widened


def _long(form: Callable[..., Tensor]) -> Form:
    def as_bits(node: Node, *values: Tensor) -> Tensor:
        if any(value.dtype != torch.uint64 for value in values):
            raise NoForm("operands of several types")
        made = form(node, *(value.view(torch.int64) for value in values))
        return made if made.dtype == torch.bool else made.view(torch.uint64)

    return as_bits


def _ordered(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda node, a, b: function(a ^ _HIGHEST, b ^ _HIGHEST)


def _extreme(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def form(node: Node, *values: Tensor) -> Tensor:
        total = values[0] ^ _HIGHEST
        for value in values[1:]:
            total = function(total, value ^ _HIGHEST)
        return total ^ _HIGHEST

    return form


def _quotient(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """By halves: twice the quotient of half of a, and one more where the rest reaches b; 0 or 1 for a divisor ≥ 2⁶³."""
    ordinary = torch.where(b < 0, torch.ones_like(b), b)
    half = torch.div((a >> 1) & ~_HIGHEST, ordinary, rounding_mode="trunc") << 1
    rest = (a - half * ordinary) ^ _HIGHEST
    small = half + (rest >= (ordinary ^ _HIGHEST)).to(torch.int64)
    return torch.where(b < 0, ((a ^ _HIGHEST) >= (b ^ _HIGHEST)).to(torch.int64), small)


def _shifted(node: Node, a: Tensor, b: Tensor) -> Tensor:
    if node.get("direction") == "LEFT":
        return a << b
    kept = torch.where(b == 0, torch.full_like(b, -1), (torch.ones_like(b) << (64 - b)) - 1)
    return (a >> b) & kept


_LONG: dict[str, Callable[..., Tensor]] = {
    "Add": lambda node, a, b: a + b,
    "Sub": lambda node, a, b: a - b,
    "Mul": lambda node, a, b: a * b,
    "Div": _quotient,
    "Mod": lambda node, a, b: a - _quotient(node, a, b) * b,
    "Equal": lambda node, a, b: a == b,
    "Less": _ordered(torch.lt),
    "LessOrEqual": _ordered(torch.le),
    "Greater": _ordered(torch.gt),
    "GreaterOrEqual": _ordered(torch.ge),
    "Max": _extreme(torch.maximum),
    "Min": _extreme(torch.minimum),
    "BitShift": _shifted,
    "BitwiseAnd": lambda node, a, b: a & b,
    "BitwiseOr": lambda node, a, b: a | b,
    "BitwiseXor": lambda node, a, b: a ^ b,
    "BitwiseNot": lambda node, a: ~a,
}
