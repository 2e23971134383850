"""Cosines and sines that are inputs of a graph: another graph made them, and their numbers aren't known.

Which numbers they are doesn't matter to ``x·cos + turned(x)·sin``: the op with tables as operands is that formula.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.fuse.pointwise import BINARY, CASTS, is_plain_cast
from attnc.compiler.rotary.reads import NotRotation
from attnc.compiler.rotary.rearranging import GATHERS, PARTING, REARRANGING
from attnc.compiler.rotary.turns import Angle, Position
from attnc.ir.graph import Graph
from attnc.ir.types import TensorType
from attnc.ir.values import Op, Value

FEATURES = -1
"""The place of the features (see :class:`~attnc.compiler.rotary.turns.Position`)."""


@dataclass(frozen=True)
class Table:
    """``count`` entries along the features of a tensor, from ``first`` on, every ``stride``; maybe negated.

    There is one entry for each pair, or one for each feature.
    """

    position: Position
    first: int
    stride: int
    count: int
    negated: bool = False

    @staticmethod
    def of(elements: Sequence[Angle], pairs: Sequence[tuple[int, int]]) -> Table:
        """The table with these elements, feature by feature. Raises NotRotation where they are in no order."""
        index = [_index(element) for element in elements]
        if all(index[a] == index[b] for a, b in pairs):
            index = [index[a] for a, _ in pairs]
        steps = {after - before for before, after in itertools.pairwise(index)} or {1}
        if len(steps) > 1 or min(steps) < 1:
            raise NotRotation("cosines or sines are taken from their tensor in no order")
        return Table(table_of(elements[0]), index[0], steps.pop(), len(index))


def table_of(element: Angle) -> Position:
    """The tensor an element is of, all its features."""
    position = _position(element)
    features = len(position.places) - 1
    places = (*position.places[:features], FEATURES)
    return replace(position, places=places, fixed=tuple(at for at in position.fixed if at[0] != features))


def _index(element: Angle) -> int:
    """Which entry along the last dimension. Raises NotRotation where that isn't a dimension of features."""
    position = _position(element)
    found = dict(position.fixed).get(len(position.places) - 1)
    if found is None:
        raise NotRotation(f"{position.value} has no dimension of features")
    return found


def _position(element: Angle) -> Position:
    (turn,) = element
    assert turn.position is not None  # an element of a tensor is entered with its place
    return turn.position


def given_tables(graph: Graph) -> set[Value]:
    """The inputs that may hold cosines or sines: all that is done with one is to rearrange it and to multiply by it."""
    return {value for value in graph.inputs if _holds_rows(value) and value.uses and _multiplies(value)}


def _holds_rows(value: Value) -> bool:
    kind = value.type
    return isinstance(kind, TensorType) and kind.dtype.is_float and kind.rank > 1 and isinstance(kind.shape[-1], int)


def _multiplies(value: Value) -> bool:
    waiting = [value]
    while waiting:
        for op in waiting.pop().users:
            if _is_rearranged(op):
                waiting += op.results
            elif BINARY.get(op.name) != "mul":
                return False
    return True


def _is_rearranged(op: Op) -> bool:
    if op.name in CASTS:
        return is_plain_cast(op) and tensor_type(op.result).dtype.is_float
    return op.name in (REARRANGING | PARTING) - GATHERS
