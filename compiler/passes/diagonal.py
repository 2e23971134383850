"""Tensors over query and key positions that depend on k − q alone, computed again as tables of |q| + |k| − 1 entries.

Relative position biases are such tensors: a pointwise function of the matrix k − q, looked up in a small table (T5,
Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 2.1). Entry t of a table stands for k − q = t − |q| + 1,
so element (q, k) is entry k − q + |q| − 1. The operators between the matrix and the tensor are issued once more, on a
matrix of one row that holds every difference once; the large ones are then no longer read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy

from attnc.compiler.fuse import pointwise as pw
from attnc.compiler.fuse.axes import is_one
from attnc.compiler.fuse.layout import PERMUTES, SAME, permutation, tensor_type
from attnc.compiler.host.sizes import NoSizeValue, materialize
from attnc.compiler.lift.lifter import Lifter
from attnc.ir import index as ix
from attnc.ir.graph import Graph
from attnc.ir.types import Dim, TensorType, as_dim
from attnc.ir.values import Arg, Literal, Op, Value, map_values

POINTWISE = pw.POINTWISE | frozenset(
    f"aten.{name}"
    for name in (
        "lt.Scalar", "le.Scalar", "gt.Scalar", "ge.Scalar", "eq.Scalar", "ne.Scalar", "lt.Tensor", "le.Tensor",
        "gt.Tensor", "ge.Tensor", "full_like.default", "zeros_like.default", "ones_like.default", "floor.default",
        "pow.Tensor_Scalar", "log2.default", "log1p.default", "sign.default", "relu.default",
    )
)  # fmt: skip
LOOKUPS = {"aten.embedding.default": 1}
"""Operators that read rows of a table, and the argument that holds the row numbers."""


class NotDiagonal(Exception):
    """A tensor that isn't known to depend on k − q alone."""


@dataclass(frozen=True)
class Place:
    """The dimensions of a tensor that run over query and key positions; its other dimensions are none's business."""

    query: int
    key: int


@dataclass
class Diagonal:
    """Makes the tables of one graph; equal requests get the same table. New ops stand before ``before``."""

    graph: Graph
    lifter: Lifter
    before: Op
    queries: Dim
    keys: Dim
    known: dict[tuple[Value, Place], Value] = field(default_factory=dict)
    ordered: dict[tuple[Value, Place], Value] = field(default_factory=dict)

    @property
    def length(self) -> Dim:
        """Number of differences k − q."""
        return as_dim(sympy.sympify(self.queries) + self.keys - 1)

    def table(self, value: Value, place: Place) -> Value:
        """``value`` with one query and :attr:`length` keys in place of its queries and keys. Raises NotDiagonal."""
        if (value, place) not in self.known:
            self.known[value, place] = self._differences(value, place) or self._again(value, place)
        return self.known[value, place]

    def by_key(self, value: Value, place: Place) -> tuple[Value, tuple[int, ...]]:
        """The table of ``value`` with its keys in neighbouring places, and the order of the value's dimensions in it.

        Raises NotDiagonal.
        """
        table = self.table(value, place)
        rank = tensor_type(value).rank
        order = (*(d for d in range(rank) if d != place.key), place.key)
        if place.key == rank - 1:
            return table, order
        if (table, place) not in self.ordered:
            kind = tensor_type(table)
            shape = tuple(kind.shape[d] for d in order)
            turned = self._create("aten.permute.default", (table, order), kind, shape)
            kwargs: dict[str, Arg] = {"memory_format": Literal("memory_format", "contiguous_format")}
            self.ordered[table, place] = self._create("aten.clone.default", (turned,), kind, shape, kwargs)
        return self.ordered[table, place], order

    def _again(self, value: Value, place: Place) -> Value:
        """The operator that makes ``value``, on tables of its operands."""
        op = value.op
        if op is None:
            raise NotDiagonal(f"%{value.name} is an input")
        if op.name in SAME or op.name in POINTWISE:
            args = tuple(map_values(arg, lambda v: self._operand(v, value, place)) for arg in op.args)
        elif op.name in PERMUTES:
            order = permutation(op, tensor_type(value).rank)
            args = (self.table(op.operands[0], Place(order[place.query], order[place.key])), *op.args[1:])
        elif op.name == "aten.unsqueeze.default":
            args = (self.table(op.operands[0], _without(op, place)), *op.args[1:])
        elif op.name in LOOKUPS and place.query < tensor_type(value).rank - 1 > place.key:
            rows = op.args[LOOKUPS[op.name]]
            assert isinstance(rows, Value)
            table = self.table(rows, place)
            args = tuple(table if arg is rows else arg for arg in op.args)
        else:
            raise NotDiagonal(f"{op.name} is not known to keep differences of positions apart")
        return self._issue(op, args, self._shape(tensor_type(value).shape, place))

    def _operand(self, operand: Value, result: Value, place: Place) -> Value:
        """The table of an operand that broadcasts to the result; the operand itself where it has no positions."""
        if not isinstance(operand.type, TensorType):
            return operand
        shape = operand.type.shape
        missing = tensor_type(result).rank - len(shape)
        query, key = place.query - missing, place.key - missing
        if all(d < 0 or is_one(shape[d]) for d in (query, key)):
            return operand
        if any(d < 0 or is_one(shape[d]) for d in (query, key)):
            raise NotDiagonal(f"%{operand.name} depends on one position alone")
        return self.table(operand, Place(query, key))

    def _differences(self, value: Value, place: Place) -> Value | None:
        """A table of ±(k − q) + c; None where the tensor holds something else."""
        type = tensor_type(value)
        if not type.dtype.is_int or not all(is_one(n) for d, n in enumerate(type.shape) if d not in _pair(place)):
            return None
        row, column = ix.axis("_q"), ix.axis("_k")
        coords = tuple(row if d == place.query else column if d == place.key else 0 for d in range(type.rank))
        ranges = {row: (sympy.Integer(0), self.queries - 1), column: (sympy.Integer(0), self.keys - 1)}
        formula = self.lifter.index(value, tuple(map(sympy.sympify, coords)), ranges)
        if formula is None or formula.has(ix.Load):
            return None
        step = sympy.expand(formula).coeff(column)
        rest = sympy.expand(formula - step * (column - row))
        if step not in (1, -1) or rest.free_symbols & {row, column}:
            return None
        return self._counted(type, place, int(step), as_dim(rest + step * (1 - sympy.sympify(self.queries))))

    def _counted(self, type: TensorType, place: Place, step: int, first: Dim) -> Value:
        """``first``, ``first + step``, … along the keys of a tensor of this rank."""
        kwargs: dict[str, Arg] = {
            "dtype": Literal("dtype", type.dtype.value),
            "device": Literal("device", type.device),
        }
        last = as_dim(sympy.sympify(first) + step * sympy.sympify(self.length))
        numbers = self._create(
            "aten.arange.start_step", (self._size(first), self._size(last), step), type, (self.length,), kwargs
        )
        shape: tuple[Arg, ...] = tuple(-1 if d == place.key else 1 for d in range(type.rank))
        return self._create("aten.view.default", (numbers, shape), type, self._shape(type.shape, place))

    def _shape(self, shape: tuple[Dim, ...], place: Place) -> tuple[Dim, ...]:
        return tuple(1 if d == place.query else self.length if d == place.key else n for d, n in enumerate(shape))

    def _issue(self, op: Op, args: tuple[Arg, ...], shape: tuple[Dim, ...]) -> Value:
        return self._create(op.name, args, tensor_type(op.result), shape, op.kwargs)

    def _create(
        self,
        name: str,
        args: tuple[Arg, ...],
        like: TensorType,
        shape: tuple[Dim, ...],
        kwargs: dict[str, Arg] | None = None,
    ) -> Value:
        kind = TensorType(like.dtype, shape, like.device)
        return self.graph.create(name, args, (kind,), kwargs=kwargs, loc=self.before.loc, before=self.before).result

    def _size(self, dim: Dim) -> Arg:
        try:
            return materialize(self.graph, dim, self.before)
        except NoSizeValue as error:
            raise NotDiagonal(str(error)) from error


def _pair(place: Place) -> tuple[int, int]:
    return place.query, place.key


def _without(op: Op, place: Place) -> Place:
    """The place in the operand of an unsqueeze. Raises NotDiagonal where the new dimension is a position."""
    rank = tensor_type(op.result).rank
    dim = op.arg(1, "dim")
    if not isinstance(dim, int) or dim % rank in _pair(place):
        raise NotDiagonal("a position of length 1")
    new = dim % rank
    return Place(place.query - (place.query > new), place.key - (place.key > new))
