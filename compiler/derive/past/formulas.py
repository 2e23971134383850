"""Formulas of a graph with a past, at absolute positions and of a whole sequence.

Row s of a step after P tokens is row P + s of the sequence of P + S tokens. So a formula of a step is that of the
sequence, restricted to its last S rows, if writing q − P for its row gives what P := 0 and S := P + S give.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import sympy
from sympy.core.relational import Relational

from attnc.ir import index as ix
from attnc.ir import score as sc
from attnc.ir.attention import QUERY, AttentionSpec

Rows = Callable[[str], tuple[int, ...]]
"""The dimensions of a tensor, by the name formulas load it under, that lie along new tokens."""

_ROW = ix.axis(QUERY)


@dataclass(frozen=True)
class Shift:
    """How a step with a past stands in the whole sequence."""

    earlier: sympy.Symbol
    tokens: sympy.Symbol

    def absolute(self, expr: sympy.Basic, places: Iterable[sympy.Symbol], rows: Rows) -> sympy.Basic:
        """A formula of a step at absolute positions ``places``; what it loads at a row, it loads P rows later."""
        moved = sympy.sympify(expr).xreplace({place: place - self.earlier for place in places})
        return moved.replace(lambda e: isinstance(e, ix.Load), lambda e: self._later(e, rows))

    def whole(self, expr: sympy.Basic) -> sympy.Basic:
        """The formula of the whole sequence."""
        return sympy.sympify(expr).xreplace({self.earlier: sympy.Integer(0), self.tokens: self.earlier + self.tokens})

    def empty(self, expr: sympy.Basic) -> sympy.Basic:
        """The formula of a sequence of S tokens: no past."""
        return sympy.sympify(expr).xreplace({self.earlier: sympy.Integer(0)})

    def _later(self, load: ix.Load, rows: Rows) -> sympy.Expr:
        along = rows(load.name)
        return ix.load(load.name, *(i + self.earlier if d in along else i for d, i in enumerate(load.indices)))

    def agrees(self, expr: sympy.Basic, places: Iterable[sympy.Symbol], rows: Rows) -> bool:
        """Whether a formula of a step is that of the whole sequence."""
        return bool(normal(self.absolute(expr, places, rows)) == normal(self.whole(expr)))

    def score_agrees(self, node: sc.Node, rows: Rows) -> bool:
        """The same of a score formula over query and key."""
        step = _mapped(node, lambda e: self.absolute(e, (_ROW,), rows), rows, self.earlier)
        return step is _mapped(node, self.whole, lambda name: (), self.earlier)

    def emptied(self, spec: AttentionSpec) -> AttentionSpec:
        """An attention without a past; sizes that its formulas read no more are left out."""

        def formula(node: sc.Node) -> sc.Node:
            return sc.substitute_index(node, {self.earlier: sympy.Integer(0)})

        made = dataclasses.replace(
            spec,
            mask=self.empty(spec.mask),
            score=formula(spec.score),
            visible=formula(spec.visible),
            weight=None if spec.weight is None else formula(spec.weight),
            sink=None if spec.sink is None else formula(spec.sink),
        )
        read = ix.sizes_of(made.mask).union(*map(sc.sizes_of, formulas(made)))
        return dataclasses.replace(made, sizes=tuple(name for name in spec.sizes if name in read))


def formulas(spec: AttentionSpec) -> list[sc.Node]:
    """The score formulas of an attention."""
    return [f for f in (spec.score, spec.visible, spec.weight, spec.sink) if f is not None]


def _mapped(root: sc.Node, change: Callable[[sympy.Basic], sympy.Basic], rows: Rows, earlier: sympy.Symbol) -> sc.Node:
    """A score formula with its index expressions changed, in normal form; loads along ``rows`` are P rows later."""
    leaves: dict[sc.Node, sc.Node] = {}
    for node in sc.walk(root):
        if node.op == "index":
            leaves[node] = sc.index(normal(change(node.value)), node.dtype)
        elif node.op == "load":
            name, indices = node.value
            along = rows(name)
            moved = (change(i) + earlier if d in along else change(i) for d, i in enumerate(indices))
            leaves[node] = sc.load(name, tuple(map(normal, moved)), node.dtype)
    return sc.substitute(root, leaves)


def normal(expr: sympy.Basic) -> sympy.Basic:
    """An equal expression, alike for many ways to write it: sums expanded, comparisons with zero on one side."""
    expr = sympy.sympify(expr)
    if isinstance(expr, Relational):
        return _comparison(expr)
    if isinstance(expr, sympy.And | sympy.Or):
        return expr.func(*sorted(map(normal, expr.args), key=str), evaluate=False)
    if isinstance(expr, sympy.Not):
        return sympy.Not(normal(expr.args[0]), evaluate=False)
    if isinstance(expr, sympy.Piecewise):
        return sympy.Piecewise(*((normal(e), normal(c)) for e, c in expr.args), evaluate=False)
    return sympy.expand(expr) if isinstance(expr, sympy.Expr) else expr


def _comparison(expr: Relational) -> sympy.Basic:
    """Of integers: x ≥ 0 for an order, x = 0 or x ≠ 0 for an equality."""
    gap = sympy.expand(expr.lhs - expr.rhs)
    match expr:
        case sympy.Ge():
            return sympy.Ge(gap, 0, evaluate=False)
        case sympy.Gt():
            return sympy.Ge(gap - 1, 0, evaluate=False)
        case sympy.Le():
            return sympy.Ge(sympy.expand(-gap), 0, evaluate=False)
        case sympy.Lt():
            return sympy.Ge(sympy.expand(-gap - 1), 0, evaluate=False)
    return expr.func(min(gap, sympy.expand(-gap), key=str), 0, evaluate=False)
