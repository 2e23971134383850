"""Elements chosen by index tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy

from attnc.compiler.lift.compare import compare
from attnc.compiler.lift.element import Coords, Element, Leaf, Refused, each, numeric, pick
from attnc.compiler.lift.scope import Scope, dimension, source, tensor
from attnc.compiler.lift.slicing import with_coordinate
from attnc.ir.values import Arg, Op, Value

Rule = Callable[[Scope, Op, Coords], Element]


def index(scope: Scope, op: Op, at: Coords) -> Element:
    """``self[i, None, j, …]``: index tensors broadcast together; None and dimensions behind keep their coordinate.

    The broadcast dimensions stand where the index tensors stand, in front where those aren't neighbours.
    """
    operand, indices = source(op), op.arg(1, "indices")
    if not isinstance(indices, tuple):
        raise Refused("indices that are not a list")
    chosen = {d: _index_tensor(i) for d, i in enumerate(indices) if i is not None}
    rank = max((tensor(v).rank for v in chosen.values()), default=0)
    places = sorted(chosen)
    neighbours = not places or places == list(range(places[0], places[-1] + 1))
    front = places[0] if places and neighbours else 0
    shared, rest = at[front : front + rank], iter(at[:front] + at[front + rank :])
    coords = [sympy.Integer(0) if d in chosen else next(rest) for d in range(tensor(operand).rank)]
    return _read(scope, operand, tuple(coords), [(d, scope.operand(v, shared)) for d, v in chosen.items()], True)


def _index_tensor(arg: Arg) -> Value:
    if not isinstance(arg, Value):
        raise Refused(f"index {arg!r}")
    if not tensor(arg).dtype.is_int:
        raise Refused("a selection by a boolean mask")
    return arg


def _read(
    scope: Scope, operand: Value, coords: Coords, indices: Sequence[tuple[int, Element]], from_end: bool
) -> Element:
    """The operand at ``coords`` with the given dimensions replaced by index elements, case by case.

    ``from_end``: negative indices count from the end; else they are an error when executed.
    """
    if not indices:
        return scope.at(operand, coords)
    (axis, chosen), others = indices[0], indices[1:]
    length = sympy.sympify(tensor(operand).shape[axis])
    several = len(numeric(chosen).branches) > 1

    def one(leaf: Leaf) -> Element:
        if isinstance(leaf, float):
            raise Refused("an index that is a float")
        wraps = from_end and length != 1 and not scope.proves(leaf)
        inner = scope.guarded(leaf) if wraps or several else scope

        def read(i: sympy.Expr) -> Element:
            return _read(inner, operand, with_coordinate(coords, axis, i), others, from_end)

        if not wraps:
            return read(leaf)
        return pick(compare(scope, "lt", leaf, sympy.Integer(0)), read(sympy.expand(leaf + length)), read(leaf))

    return each(one, chosen)


def embedding(scope: Scope, op: Op, at: Coords) -> Element:
    """Row ``indices`` of a table."""
    table, rows = source(op, 0, "weight"), source(op, 1, "indices")
    return _read(scope, table, (sympy.Integer(0), at[-1]), [(0, scope.at(rows, at[:-1]))], False)


def index_select(scope: Scope, op: Op, at: Coords) -> Element:
    """Positions ``index`` of one dimension."""
    operand, chosen = source(op), source(op, 2, "index")
    axis = dimension(op.arg(1, "dim"), len(at))
    return _read(scope, operand, at, [(axis, scope.operand(chosen, at[axis : axis + 1]))], False)


def gather(scope: Scope, op: Op, at: Coords) -> Element:
    """One dimension read at the index of each element."""
    operand, chosen = source(op), source(op, 2, "index")
    axis = dimension(op.arg(1, "dim"), len(at))
    return _read(scope, operand, at, [(axis, scope.at(chosen, at))], False)


RULES: dict[str, Rule] = {
    "aten.index.Tensor": index,
    "aten.embedding.default": embedding,
    "aten.index_select.default": index_select,
    "aten.gather.default": gather,
}
