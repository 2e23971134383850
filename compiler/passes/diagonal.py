"""Tensors over query and key positions that depend on the relative position alone, computed again as O(S) tables.

Relative position biases are such tensors: a pointwise function of the matrix k − q, or of an index into the offsets
within a window, looked up in a small table (T5, Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 2.1;
Swin, Liu et al. 2021, https://arxiv.org/abs/2103.14030, section 3.2). A :mod:`relation
<attnc.compiler.passes.relation>` numbers the relative positions; entry t of a table stands for number t. The operators
between the integer matrix and the tensor are issued once more, on a matrix of one row that holds every number once;
the large ones are then no longer read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy

from attnc.compiler.fuse import pointwise as pw
from attnc.compiler.fuse.axes import is_one
from attnc.compiler.fuse.layout import PERMUTES, SAME, VIEWS, permutation, tensor_type
from attnc.compiler.lift.content import Array
from attnc.compiler.lift.lifter import Lifter
from attnc.compiler.passes.contents import Contents
from attnc.compiler.passes.issue import Issue
from attnc.compiler.passes.place import NotRelative, Place
from attnc.compiler.passes.relation import Difference, Grid, Relation, entries
from attnc.ir import index as ix
from attnc.ir.types import Dim, DType, TensorType, as_dim
from attnc.ir.values import Arg, Op, Value, map_values

POINTWISE = pw.POINTWISE | frozenset(
    f"aten.{name}"
    for name in (
        "lt.Scalar", "le.Scalar", "gt.Scalar", "ge.Scalar", "eq.Scalar", "ne.Scalar", "lt.Tensor", "le.Tensor",
        "gt.Tensor", "ge.Tensor", "full_like.default", "zeros_like.default", "ones_like.default", "floor.default",
        "pow.Tensor_Scalar", "log2.default", "log1p.default", "sign.default", "relu.default",
    )
)  # fmt: skip


@dataclass
class Diagonal:
    """Makes tables over the numbers of one relation; equal requests get the same table."""

    issue: Issue
    lifter: Lifter
    contents: Contents
    relation: Relation
    _known: dict[tuple[Value, Place], Value] = field(default_factory=dict)
    _ordered: dict[tuple[Value, Place], Value] = field(default_factory=dict)
    _vectors: tuple[Value, Value] | None = None

    def table(self, value: Value, place: Place) -> Value:
        """``value`` with one query and a key for each number in place of its queries and keys. Raises NotRelative."""
        if (value, place) not in self._known:
            self._known[value, place] = self._leaf(value, place) or self._again(value, place)
        return self._known[value, place]

    def by_key(self, value: Value, place: Place) -> tuple[Value, tuple[int, ...]]:
        """The table of ``value`` with its keys in neighbouring places, and the order of the value's dimensions in it.

        Raises NotRelative.
        """
        table = self.table(value, place)
        rank = tensor_type(value).rank
        order = (*(d for d in range(rank) if d != place.key), place.key)
        if place.key == rank - 1:
            return table, order
        if (table, place) not in self._ordered:
            self._ordered[table, place] = self.issue.permuted(table, order)
        return self._ordered[table, place], order

    def vectors(self) -> tuple[Value, Value]:
        """The two parts of the numbers of a grid, [rows] and [keys]."""
        assert isinstance(self.relation, Grid)
        if self._vectors is None:
            parts = (("query_part", self.relation.by_row), ("key_part", self.relation.by_key))
            query, key = (self.issue.constant(name, part.astype("int32"), DType.I32) for name, part in parts)
            self._vectors = query, key
        return self._vectors

    @property
    def _pair(self) -> tuple[Dim, Dim]:
        return self.relation.rows, self.relation.keys

    def _shape(self, value: Value, place: Place) -> tuple[Dim, ...]:
        return place.shape(tensor_type(value).shape, self.relation.length)

    def _again(self, value: Value, place: Place) -> Value:
        """The operator that makes ``value``, on tables of its operands."""
        op = value.op
        if op is None:
            raise NotRelative(f"%{value.name} is an input, so its content isn't known when compiling")
        rank = tensor_type(value).rank
        if op.name in SAME or op.name in POINTWISE:
            args = tuple(map_values(arg, lambda v: self._operand(v, rank, place)) for arg in op.args)
        elif op.name in PERMUTES:
            order = permutation(op, rank)
            args = (self.table(op.operands[0], Place(order[place.query], order[place.key])), *op.args[1:])
        elif op.name == "aten.unsqueeze.default":
            args = (self._viewed(op, place), *op.args[1:])
        elif op.name in VIEWS:
            return self.issue.reshaped(self._viewed(op, place), self._shape(value, place))
        else:
            args = self._lookup(op, place)
        return self.issue.like(op, args, self._shape(value, place))

    def _viewed(self, op: Op, place: Place) -> Value:
        """The table of a view's operand."""
        source = op.operands[0]
        return self.table(
            source, place.before_view(tensor_type(op.result).shape, tensor_type(source).shape, self._pair)
        )

    def _lookup(self, op: Op, place: Place) -> tuple[Arg, ...]:
        """The arguments of an operator that reads a table at places that depend on the pair."""
        rank = tensor_type(op.result).rank
        if op.name == "aten.embedding.default" and max(place.query, place.key) < rank - 1:
            return (op.args[0], self._rows(op.args[1], rank - 1, place), *op.args[2:])
        if op.name == "aten.index_select.default" and isinstance(dim := op.args[1], int):
            return (*op.args[:2], self._rows(op.args[2], 1, place.moved(dim % rank)))
        if op.name == "aten.index.Tensor" and isinstance(op.args[1], tuple):
            chosen = [d for d, index in enumerate(op.args[1]) if index is not None]
            operands = [index for index in op.args[1] if isinstance(index, Value)]
            if operands and len(operands) == len(chosen) and chosen == [*range(chosen[0], chosen[-1] + 1)]:
                spanned = max(tensor_type(index).rank for index in operands)
                inner = place.moved(chosen[0])
                rows = (None if index is None else self._rows(index, spanned, inner) for index in op.args[1])
                return (op.args[0], tuple(rows))
        raise NotRelative(f"{op.name} is not known to keep relative positions apart")

    def _rows(self, arg: Arg, rank: int, place: Place) -> Value:
        """The table of an index tensor among indices that span ``rank`` dimensions."""
        if not isinstance(arg, Value) or not tensor_type(arg).dtype.is_int:
            raise NotRelative("a selection by something other than integers")
        if not (0 <= place.query < rank and 0 <= place.key < rank):
            raise NotRelative("positions are dimensions of the table that is read")
        return self._operand(arg, rank, place)

    def _operand(self, operand: Value, rank: int, place: Place) -> Value:
        """The table of an operand that broadcasts to ``rank`` dimensions; itself where it has no positions."""
        if not isinstance(operand.type, TensorType):
            return operand
        shape = operand.type.shape
        own = place.moved(rank - len(shape))
        alone = [d < 0 or is_one(shape[d]) for d in (own.query, own.key)]
        if all(alone):
            return operand
        if any(alone):
            raise NotRelative(f"%{operand.name} depends on one position alone")
        return self.table(operand, own)

    def _leaf(self, value: Value, place: Place) -> Value | None:
        """The table of a matrix of integers or truth values whose elements are known; None for other tensors."""
        kind = tensor_type(value)
        others = (n for d, n in enumerate(kind.shape) if d not in (place.query, place.key))
        if not (kind.dtype.is_int or kind.dtype is DType.B1) or not all(map(is_one, others)):
            return None
        found = self._counted(value, place) if isinstance(self.relation, Difference) else None
        if found is None and (content := self.contents.of(value)) is not None:
            matrix = self._matrix(content, place)
            table = entries(self.relation, matrix)
            if table is None:
                raise NotRelative(f"%{value.name} is no function of {self.relation.meaning}", matrix)
            found = self.issue.constant("relative", table, kind.dtype)
        return None if found is None else self.issue.reshaped(found, self._shape(value, place))

    def _matrix(self, content: Array, place: Place) -> Array:
        """The elements as a matrix [rows, keys]."""
        if place.flat:
            return content.reshape(-1, int(self.relation.keys))
        matrix = content.reshape([n for d, n in enumerate(content.shape) if d in (place.query, place.key)])
        return matrix if place.query < place.key else matrix.T

    def _counted(self, value: Value, place: Place) -> Value | None:
        """A vector of ±(k − q) + c for every difference; None where the tensor holds something else."""
        kind = tensor_type(value)
        if not kind.dtype.is_int:
            return None
        row, column = ix.axis("_q"), ix.axis("_k")
        rows, keys = map(sympy.sympify, self._pair)
        at = {place.query: row, place.key: column} if not place.flat else {place.key: row * keys + column}
        coords = tuple(at.get(d, sympy.Integer(0)) for d in range(kind.rank))
        formula = self.lifter.index(
            value, coords, {row: (sympy.Integer(0), rows - 1), column: (sympy.Integer(0), keys - 1)}
        )
        if formula is None or formula.has(ix.Load):
            return None
        step = sympy.expand(formula).coeff(column)
        rest = sympy.expand(formula - step * (column - row))
        if step not in (1, -1) or rest.free_symbols & {row, column}:
            return None
        return self.issue.arange(as_dim(rest + step * (1 - rows)), int(step), self.relation.length, kind)
