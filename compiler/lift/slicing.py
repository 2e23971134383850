"""Parts of a tensor: slice, select, split and its relatives, triu and tril, roll."""

from __future__ import annotations

from collections.abc import Callable

import sympy

from attnc.compiler.lift.compare import compare
from attnc.compiler.lift.element import Coords, Element, Refused, pick, single
from attnc.compiler.lift.scope import Scope, dimension, integer, source, tensor
from attnc.ir.types import DType
from attnc.ir.values import Arg, Op, Value

Rule = Callable[[Scope, Op, Coords], Element]


def with_coordinate(at: Coords, axis: int, coordinate: sympy.Expr) -> Coords:
    """Coordinates with one of them replaced."""
    return (*at[:axis], coordinate, *at[axis + 1 :])


def begin(scope: Scope, arg: Arg, length: sympy.Expr) -> sympy.Expr:
    """The first position of a slice: counted from the end where negative, then held inside [0, length]."""
    start = sympy.Integer(0) if arg is None else scope.scalar(arg)
    if scope.proves(-start - 1):
        start = start + length
    elif not scope.proves(start):
        raise Refused(f"a slice that starts at {start}, of unknown sign")
    return scope.simplify(sympy.Max(start, 0))


def slice_(scope: Scope, op: Op, at: Coords) -> Element:
    """start + i·step; a start past the end leaves no element to ask for."""
    axis = dimension(op.arg(1, "dim", 0), len(at))
    operand = source(op)
    start = begin(scope, op.arg(2, "start"), sympy.sympify(tensor(operand).shape[axis]))
    step = integer(op.arg(4, "step", 1))
    return scope.at(operand, with_coordinate(at, axis, start + at[axis] * step))


def position(scope: Scope, arg: Arg, length: sympy.Expr) -> sympy.Expr:
    """One index, counted from the end where negative."""
    index = scope.scalar(arg)
    if scope.proves(index):
        return index
    if scope.proves(-index - 1):
        return sympy.expand(index + length)
    raise Refused(f"index {index} of unknown sign")


def select(scope: Scope, op: Op, at: Coords) -> Element:
    """One position of a dimension, which goes."""
    operand = source(op)
    shape = tensor(operand).shape
    axis = dimension(op.arg(1, "dim"), len(shape))
    index = position(scope, op.arg(2, "index"), sympy.sympify(shape[axis]))
    return scope.at(operand, (*at[:axis], index, *at[axis:]))


def narrow(scope: Scope, op: Op, at: Coords) -> Element:
    """``length`` positions from ``start`` on."""
    operand = source(op)
    axis = dimension(op.arg(1, "dim"), len(at))
    start = position(scope, op.arg(2, "start"), sympy.sympify(tensor(operand).shape[axis]))
    return scope.at(operand, with_coordinate(at, axis, start + at[axis]))


def item(scope: Scope, op: Op, at: Coords) -> Element:
    """One of the results of an op that cuts its operand into pieces."""
    pieces, which = op.args[0], integer(op.args[1])
    if not isinstance(pieces, Value) or pieces.op is None:
        raise Refused("an item of an unknown list")
    producer, operand = pieces.op, source(pieces.op)
    rank = tensor(operand).rank
    if producer.name == "aten.unbind.int":
        axis = dimension(producer.arg(1, "dim", 0), rank)
        return scope.at(operand, (*at[:axis], sympy.Integer(which), *at[axis:]))
    axis = dimension(producer.arg(2, "dim", 0), rank)
    if producer.name == "aten.split.Tensor":
        start = which * scope.scalar(producer.arg(1, "split_size"))
    elif producer.name == "aten.split_with_sizes.default":
        sizes = producer.arg(1, "split_sizes")
        start = sum((scope.scalar(n) for n in sizes[:which]), sympy.Integer(0)) if isinstance(sizes, tuple) else None
    elif producer.name == "aten.chunk.default":
        # pieces have the length of the first one, all but the last
        length, count = sympy.sympify(tensor(operand).shape[axis]), integer(producer.arg(1, "chunks"))
        start = which * scope.simplify(sympy.floor((length + count - 1) / count))
    else:
        raise Refused(f"an item of {producer.name}")
    return scope.at(operand, with_coordinate(at, axis, start + at[axis]))


def _triangle(kind: str) -> Rule:
    """A rule that keeps the elements with column − row ``kind`` diagonal, and is 0 elsewhere."""

    def rule(scope: Scope, op: Op, at: Coords) -> Element:
        kept = compare(scope, kind, at[-1] - at[-2], scope.scalar(op.arg(1, "diagonal", 0)))
        zero: Element = sympy.false if tensor(op.result).dtype is DType.B1 else single(0)
        return pick(kept, scope.at(source(op), at), zero)

    return rule


def roll(scope: Scope, op: Op, at: Coords) -> Element:
    """Element i − shift, counted around; shifts of one dimension by a literal number of places."""
    shifts, dims = op.arg(1, "shifts"), op.arg(2, "dims", ())
    if not isinstance(shifts, tuple) or not isinstance(dims, tuple) or len(shifts) != 1 or len(dims) != 1:
        raise Refused("a roll of several or of flattened dimensions")
    axis, shift, operand = dimension(dims[0], len(at)), integer(shifts[0]), source(op)
    length = tensor(operand).shape[axis]
    coordinate = scope.simplify(sympy.Mod(at[axis] - shift, length))
    return scope.at(operand, with_coordinate(at, axis, coordinate))


RULES: dict[str, Rule] = {
    "aten.slice.Tensor": slice_,
    "aten.select.int": select,
    "aten.narrow.default": narrow,
    "py.getitem": item,
    "aten.triu.default": _triangle("ge"),
    "aten.tril.default": _triangle("le"),
    "aten.roll.default": roll,
}
