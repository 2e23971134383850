"""Tensors put together: cat, stack, pad."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy

from attnc.compiler.lift.compare import compare
from attnc.compiler.lift.convert import convert
from attnc.compiler.lift.creation import fill
from attnc.compiler.lift.element import Choice, Coords, Element, Refused, pick
from attnc.compiler.lift.scope import Scope, dimension, integer, source, tensor
from attnc.compiler.lift.slicing import with_coordinate
from attnc.ir.index import loads
from attnc.ir.types import DType
from attnc.ir.values import Arg, Op, Value

Rule = Callable[[Scope, Op, Coords], Element]


def values(arg: Arg) -> list[Value]:
    """The tensors of a list argument. Raises Refused for anything else."""
    if not isinstance(arg, tuple) or not all(isinstance(v, Value) for v in arg):
        raise Refused("a list that holds something other than tensors")
    return [v for v in arg if isinstance(v, Value)]


def joined(scope: Scope, parts: Sequence[Value], axis: int, dtype: DType, at: Coords) -> Element:
    """The element of the concatenation of ``parts`` along ``axis``, in ``dtype``."""
    parts = [p for p in parts if tensor(p).shape != (0,)]  # cat ignores these whatever the rank of the others
    if not parts:
        raise Refused("a concatenation of nothing")
    starts = [sympy.Integer(0)]
    for part in parts[:-1]:
        starts.append(sympy.expand(starts[-1] + tensor(part).shape[axis]))
    element = _part(scope, parts[-1], starts[-1], axis, dtype, at)
    for i in reversed(range(len(parts) - 1)):
        if _continues(scope, parts[i], parts[i + 1], axis, dtype, at) and i == len(parts) - 2:
            element = _extended(scope, parts[i + 1], starts[i + 1], axis, dtype, at)
            continue
        here = compare(scope, "lt", at[axis], starts[i + 1])
        element = pick(here, _part(scope, parts[i], starts[i], axis, dtype, at), element)
    return element


def _part(scope: Scope, part: Value, start: sympy.Expr, axis: int, dtype: DType, at: Coords) -> Element:
    """A part at its own coordinate, which may be out of bounds where another part is read."""
    coordinate = sympy.expand(at[axis] - start)
    length = tensor(part).shape[axis]
    inside = scope.proves(coordinate) and scope.proves(length - 1 - coordinate)
    inner = scope if inside else scope.guarded(coordinate)
    return convert(inner, inner.at(part, with_coordinate(at, axis, coordinate)), tensor(part).dtype, dtype)


def _extended(scope: Scope, part: Value, start: sympy.Expr, axis: int, dtype: DType, at: Coords) -> Element:
    """The formula of a part along its own axis, read also at positions before its first."""
    inner, symbol = scope.with_axis(sympy.sympify(tensor(part).shape[axis]))
    element = convert(inner, inner.at(part, with_coordinate(at, axis, symbol)), tensor(part).dtype, dtype)
    return substituted(scope, element, symbol, sympy.expand(at[axis] - start))


def _continues(scope: Scope, first: Value, second: Value, axis: int, dtype: DType, at: Coords) -> bool:
    """Whether one position in front of ``second`` its formula gives the only element of ``first``.

    So ``cat([p[:1] - 1, p])`` of positions p = i is i − 1, without a case: how packed sequences are detected.
    """
    if tensor(first).shape[axis] != 1 or tensor(second).shape[axis] == 1:
        return False
    try:
        inner, symbol = scope.with_axis(sympy.sympify(tensor(second).shape[axis]))
        body = convert(inner, inner.at(second, with_coordinate(at, axis, symbol)), tensor(second).dtype, dtype)
        head = scope.at(first, with_coordinate(at, axis, sympy.Integer(0)))
    except Refused:
        return False
    if not isinstance(body, Choice) or len(body.branches) > 1 or isinstance(body.branches[0][1], float):
        return False
    formula = body.branches[0][1]
    if any(symbol in load.free_symbols for load in loads(formula)):
        return False
    return substituted(scope, body, symbol, sympy.Integer(-1)) == convert(scope, head, tensor(first).dtype, dtype)


def substituted(scope: Scope, element: Element, symbol: sympy.Symbol, replacement: sympy.Expr) -> Element:
    """The element with a coordinate replaced, simplified again."""

    def swap(part: sympy.Basic) -> sympy.Basic:
        return scope.simplify(part.xreplace({symbol: replacement}))

    if not isinstance(element, Choice):
        return swap(element)
    return Choice(tuple((swap(c), v if isinstance(v, float) else swap(v)) for c, v in element.branches))


def cat(scope: Scope, op: Op, at: Coords) -> Element:
    """Operands one behind the other along ``dim``."""
    axis = dimension(op.arg(1, "dim", 0), len(at))
    return joined(scope, values(op.arg(0, "tensors")), axis, tensor(op.result).dtype, at)


def stack(scope: Scope, op: Op, at: Coords) -> Element:
    """The operand chosen by the new coordinate."""
    axis = dimension(op.arg(1, "dim", 0), len(at))
    operands, dtype = values(op.arg(0, "tensors")), tensor(op.result).dtype
    rest = at[:axis] + at[axis + 1 :]
    read = [convert(scope, scope.at(v, rest), tensor(v).dtype, dtype) for v in operands]
    element = read[-1]
    for i in reversed(range(len(read) - 1)):
        element = pick(compare(scope, "eq", at[axis], sympy.Integer(i)), read[i], element)
    return element


def pad(scope: Scope, op: Op, at: Coords) -> Element:
    """A constant outside the operand; widths come last dimension first, before and after, and may be negative."""
    operand, widths = source(op), op.arg(1, "pad")
    if not isinstance(widths, tuple):
        raise Refused("padding that is not a list")
    value = op.arg(2, "value")
    if op.name == "aten.pad.default":
        if op.arg(2, "mode", "constant") != "constant":
            raise Refused("padding that repeats elements")
        value = op.arg(3, "value")
    outside = fill(scope, 0 if value is None else value, tensor(op.result).dtype)
    shape, coords, inside = tensor(operand).shape, list(at), []
    inner = scope
    for i in range(len(widths) // 2):
        axis, before = len(at) - 1 - i, integer(widths[2 * i])
        coords[axis] = sympy.expand(at[axis] - before)
        inside += [
            compare(scope, "ge", coords[axis], sympy.Integer(0)),
            compare(scope, "lt", coords[axis], sympy.sympify(shape[axis])),
        ]
        inner = inner.guarded(coords[axis])
    return pick(sympy.And(*inside), inner.at(operand, tuple(coords)), outside)


RULES: dict[str, Rule] = {
    "aten.cat.default": cat,
    "aten.stack.default": stack,
    "aten.constant_pad_nd.default": pad,
    "aten.pad.default": pad,
}
