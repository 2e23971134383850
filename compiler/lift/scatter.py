"""Writes made functional: a result that equals one operand but for a region."""

from __future__ import annotations

from collections.abc import Callable

import sympy

from attnc.compiler.lift.compare import compare
from attnc.compiler.lift.convert import convert
from attnc.compiler.lift.element import Coords, Element, Refused, as_expr, pick
from attnc.compiler.lift.promote import dtype_of
from attnc.compiler.lift.scope import Scope, dimension, integer, source, tensor
from attnc.compiler.lift.slicing import begin, position, with_coordinate
from attnc.ir.values import Arg, Op, Value

Rule = Callable[[Scope, Op, Coords], Element]


def written(scope: Scope, op: Op, arg: Arg, at: Coords) -> Element:
    """The element written at ``at`` of the region, in the result's dtype."""
    return convert(scope, scope.operand(arg, at), dtype_of(arg), tensor(op.result).dtype)


def copy(scope: Scope, op: Op, at: Coords) -> Element:
    """The source, broadcast and cast."""
    return written(scope, op, op.arg(1, "src"), at)


def slice_scatter(scope: Scope, op: Op, at: Coords) -> Element:
    """``src`` where start ≤ i < end, else ``self``; steps other than 1 are refused."""
    if integer(op.arg(5, "step", 1)) != 1:
        raise Refused("a write with a step")
    operand, region = source(op), source(op, 1, "src")
    axis = dimension(op.arg(2, "dim", 0), len(at))
    start = begin(scope, op.arg(3, "start"), sympy.sympify(tensor(operand).shape[axis]))
    coordinate = sympy.expand(at[axis] - start)
    inside = sympy.And(
        compare(scope, "ge", coordinate, sympy.Integer(0)),
        compare(scope, "lt", coordinate, sympy.sympify(tensor(region).shape[axis])),
    )
    here = written(scope.guarded(coordinate), op, region, with_coordinate(at, axis, coordinate))
    return pick(inside, here, scope.at(operand, at))


def select_scatter(scope: Scope, op: Op, at: Coords) -> Element:
    """``src`` at one index of a dimension, else ``self``."""
    operand = source(op)
    axis = dimension(op.arg(2, "dim"), len(at))
    index = position(scope, op.arg(3, "index"), sympy.sympify(tensor(operand).shape[axis]))
    here = written(scope, op, op.arg(1, "src"), at[:axis] + at[axis + 1 :])
    return pick(compare(scope, "eq", at[axis], index), here, scope.at(operand, at))


def index_put(scope: Scope, op: Op, at: Coords) -> Element:
    """One element per index tensor of one element each, over the leading dimensions; no accumulation."""
    operand, indices, value = source(op), op.arg(1, "indices"), op.arg(2, "values")
    if op.arg(3, "accumulate", False) or not isinstance(indices, tuple) or not isinstance(value, Value):
        raise Refused("a write that accumulates")
    if tensor(value).rank > 0 and any(n != 1 for n in tensor(value).shape):
        raise Refused("a write of several values")
    hits = []
    for axis, arg in enumerate(indices):
        if arg is None:
            continue
        if not isinstance(arg, Value) or not tensor(arg).dtype.is_int or any(n != 1 for n in tensor(arg).shape):
            raise Refused("a write at several indices")
        index = as_expr(scope.at(arg, (sympy.Integer(0),) * tensor(arg).rank))
        if not scope.proves(index):
            raise Refused("a write at an index of unknown sign")
        hits.append(compare(scope, "eq", at[axis], index))
    here = written(scope, op, value, (sympy.Integer(0),) * tensor(value).rank)
    return pick(sympy.And(*hits), here, scope.at(operand, at))


RULES: dict[str, Rule] = {
    "aten.copy.default": copy,
    "aten.slice_scatter.default": slice_scatter,
    "aten.select_scatter.default": select_scatter,
    "aten.index_put.default": index_put,
}
