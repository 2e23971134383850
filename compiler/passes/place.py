"""Where the dimensions of a tensor run over query–key pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import sympy

from attnc.compiler.lift.content import Array
from attnc.ir.types import Dim, as_dim, same_dim


class NotRelative(Exception):
    """A tensor that isn't known to depend on the relative position alone.

    ``content``: the matrix [rows, keys] of integers that stood in the way, where that is it.
    """

    def __init__(self, text: str, content: Array | None = None) -> None:
        super().__init__(text)
        self.content = content


@dataclass(frozen=True)
class Place:
    """The dimensions for queries and for keys; one and the same where it runs over pairs, query · |k| + key.

    The other dimensions of the tensor are none's business.
    """

    query: int
    key: int

    @property
    def flat(self) -> bool:
        """One dimension runs over pairs."""
        return self.query == self.key

    def moved(self, by: int) -> Place:
        """The place in a tensor with ``by`` dimensions fewer in front."""
        return Place(self.query - by, self.key - by)

    def shape(self, shape: tuple[Dim, ...], length: Dim) -> tuple[Dim, ...]:
        """``shape`` with one query and ``length`` keys."""
        return tuple(length if d == self.key else 1 if d == self.query else n for d, n in enumerate(shape))

    def before_view(self, result: tuple[Dim, ...], operand: tuple[Dim, ...], pair: tuple[Dim, Dim]) -> Place:
        """The place in the operand of a row-major view. Raises NotRelative where the view cuts queries or keys."""
        rows, keys = pair
        query = _find(operand, _product(result[: self.query]), rows)
        key = _find(
            operand, _product((*result[: self.query], rows)) if self.flat else _product(result[: self.key]), keys
        )
        if query is not None and key is not None:
            return Place(query, key)
        merged = _find(operand, _product(result[: self.query]), _product(pair))
        if merged is None or not (self.flat or self.key == self.query + 1):
            raise NotRelative("a view cuts the query or key position")
        return Place(merged, merged)


def _find(shape: tuple[Dim, ...], ahead: Dim, length: Dim) -> int | None:
    """The dimension of this length with so many elements in front of it."""
    return next((d for d, n in enumerate(shape) if same_dim(n, length) and same_dim(_product(shape[:d]), ahead)), None)


def _product(lengths: tuple[Dim, ...]) -> Dim:
    return as_dim(sympy.expand(math.prod(map(sympy.sympify, lengths), start=sympy.Integer(1))))
