"""Sizes as values: an expression over named sizes becomes an IR value that computes it.

Passes write symbolic shapes (``aten.view`` to ``[B, S, 4, 16]``); torch wants each as a number known at run time. A
named size is read from an input: an integer input that is the size, else a dimension of a tensor input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce

import sympy

from attnc.ir.graph import Graph
from attnc.ir.types import Dim, ScalarType, TensorType, as_dim
from attnc.ir.values import Arg, Location, Op, Value


class NoSizeValue(Exception):
    """A size no input carries, or an expression without a Python form."""


def materialize(graph: Graph, dim: Dim, before: Op | None = None) -> Arg:
    """An argument equal to ``dim`` at run time, usable by ``before`` (None: at the end of the graph).

    An int stays one. A value already computed above ``before`` is used again; otherwise ``py.*`` and
    ``aten.sym_size.int`` ops are made in front of it. Raises :class:`NoSizeValue`.
    """
    return SizeMaterializer(graph, before).value(dim)


def materialize_all(graph: Graph, shape: Iterable[Dim], before: Op | None = None) -> tuple[Arg, ...]:
    """:func:`materialize` of each dimension of a shape."""
    maker = SizeMaterializer(graph, before)
    return tuple(maker.value(dim) for dim in shape)


class SizeMaterializer:
    """Makes size values in front of one op."""

    def __init__(self, graph: Graph, before: Op | None = None) -> None:
        self.graph = graph
        self.before = before
        end = len(graph.ops) if before is None else graph.ops.index(before)
        above = (value for op in graph.ops[:end] for value in op.results)
        self.known: dict[sympy.Expr, Value] = {}
        for value in (*graph.inputs, *above):
            if isinstance(value.type, ScalarType) and value.type.kind == "int" and value.type.expr is not None:
                self.known.setdefault(sympy.sympify(value.type.expr), value)

    def value(self, dim: Dim) -> Arg:
        """The argument for one dimension. Raises :class:`NoSizeValue`."""
        dim = as_dim(dim)
        if isinstance(dim, int):
            return dim
        if dim in self.known:
            return self.known[dim]
        if isinstance(dim, sympy.Symbol):
            return self._read(dim)
        return self._compute(dim)

    def _read(self, symbol: sympy.Symbol) -> Value:
        """A named size: from an integer input that is the size plus a constant, or from a tensor's dimension."""
        for expr, value in self.known.items():
            offset = sympy.sympify(symbol - expr)
            if offset.is_Integer:
                return self._op("py.add", (value, int(offset)), symbol)
        for tensor in self.graph.inputs:
            if isinstance(tensor.type, TensorType):
                for position, extent in enumerate(tensor.type.shape):
                    if extent == symbol:
                        return self._op("aten.sym_size.int", (tensor, position), symbol)
        raise NoSizeValue(f"no input of {self.graph.name} has the size {symbol}")

    def _compute(self, dim: sympy.Expr) -> Arg:
        if isinstance(dim, sympy.Add):
            return self._fold("py.add", dim.args, lambda a, b: a + b)
        if isinstance(dim, sympy.Mul):
            return self._fold("py.mul", dim.args, lambda a, b: a * b)
        if isinstance(dim, sympy.Pow) and dim.exp.is_Integer and dim.exp.is_positive:
            return self._fold("py.mul", (dim.base,) * int(dim.exp), lambda a, b: a * b)
        if isinstance(dim, sympy.Max):
            return self._fold("py.sym_max", dim.args, sympy.Max)
        if isinstance(dim, sympy.Min):
            return self._fold("py.sym_min", dim.args, sympy.Min)
        if isinstance(dim, sympy.floor):
            numerator, denominator = sympy.together(dim.args[0]).as_numer_denom()
            return self._op("py.floordiv", (self.value(numerator), self.value(denominator)), dim)
        if isinstance(dim, sympy.Mod):
            return self._op("py.mod", tuple(self.value(as_dim(a)) for a in dim.args), dim)
        raise NoSizeValue(f"{dim} has no Python form ({type(dim).__name__})")

    def _fold(
        self, name: str, parts: Iterable[sympy.Expr], combine: Callable[[sympy.Expr, sympy.Expr], sympy.Expr]
    ) -> Arg:
        """A left fold of a two-operand op, its partial results shared with later requests."""

        def join(left: tuple[sympy.Expr, Arg], right: tuple[sympy.Expr, Arg]) -> tuple[sympy.Expr, Arg]:
            expr = combine(left[0], right[0])
            return expr, self.known.get(expr) or self._op(name, (left[1], right[1]), expr)

        ordered = sorted(parts, key=lambda part: (bool(part.is_number), sympy.default_sort_key(part)))
        return reduce(join, [(part, self.value(as_dim(part))) for part in ordered])[1]

    def _op(self, name: str, args: tuple[Arg, ...], dim: sympy.Expr) -> Value:
        location = self.before.loc if self.before is not None else Location()
        op = self.graph.create(name, args, [ScalarType("int", dim)], before=self.before, loc=location)
        self.known[dim] = op.result
        return op.result
