"""Numberings of query–key pairs in which pairs at one relative position share a number.

A tensor over pairs that depends on the number alone is a table with an entry for each number. The number is always a
sum of a part that the query decides and a part that the key decides:

- a *difference*: number = k − q + |q| − 1, for sequences of any length;
- a *grid*: positions are the cells of a grid, row by row; the number stands for the two differences of coordinates.
  A first position that is no cell (a class token) gets numbers of its own. Queries may be every s-th cell of every
  s-th row. Sizes are fixed, and the two parts are vectors.

Grids are not told apart by formulas: a matrix is compared, element by element, with the grids its size allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import sympy

from attnc.compiler.lift.content import Array
from attnc.ir.types import Dim, as_dim

MOST_STRIDE = 4


@dataclass(frozen=True)
class Difference:
    """Numbers of differences k − q."""

    rows: Dim
    keys: Dim
    meaning: ClassVar[str] = "k - q"

    @property
    def length(self) -> Dim:
        """Count of numbers."""
        return as_dim(sympy.sympify(self.rows) + self.keys - 1)

    def numbers(self) -> Array | None:
        """The number of each pair [rows, keys]; None where a length is symbolic."""
        if not (isinstance(self.rows, int) and isinstance(self.keys, int)):
            return None
        return np.arange(self.keys) + (self.rows - 1 - np.arange(self.rows))[:, None]


@dataclass(frozen=True, eq=False)
class Grid:
    """Numbers of differences of cells: ``by_row[q] + by_key[k]`` < ``length``."""

    by_row: Array
    by_key: Array
    length: int
    meaning: ClassVar[str] = "the offset of two cells of a grid"

    @property
    def rows(self) -> int:
        return len(self.by_row)

    @property
    def keys(self) -> int:
        return len(self.by_key)

    def numbers(self) -> Array:
        """The number of each pair [rows, keys]."""
        return self.by_row[:, None] + self.by_key


Relation = Difference | Grid


def entries(relation: Relation, content: Array) -> Array | None:
    """The entry of each number, for a matrix [rows, keys] that depends on the number alone; None for any other.

    Numbers that no pair has get some entry of the matrix.
    """
    numbers = relation.numbers()
    if numbers is None or numbers.shape != content.shape:
        return None
    table = np.full(int(relation.length), content[0, 0])
    table[numbers] = content
    return table if bool((table[numbers] == content).all()) else None


def grid_of(content: Array) -> Grid | None:
    """The grid with the fewest numbers that decide the matrix [rows, keys]; None where it has no more than pairs."""
    found = sorted(_grids(*content.shape), key=lambda grid: grid.length)
    return next((g for g in found if g.length < content.size and entries(g, content) is not None), None)


def _grids(rows: int, keys: int) -> Iterator[Grid]:
    """Every grid of these sizes."""
    for extra in (0, 1):
        for height, width in _shapes(keys - extra):
            for stride in range(1, MOST_STRIDE + 1):
                tall, wide = -(-height // stride), -(-width // stride)
                if tall * wide == rows - extra:
                    plain = _cells(height, width, tall, wide, stride)
                    yield _with_token(plain) if extra else plain


def _shapes(count: int) -> Iterator[tuple[int, int]]:
    yield from ((count // width, width) for width in range(1, count + 1) if count % width == 0)


def _cells(height: int, width: int, tall: int, wide: int, stride: int) -> Grid:
    """Keys are height × width cells, queries the tall × wide ones at multiples of the stride."""
    down, right = stride * (tall - 1), stride * (wide - 1)
    line = right + width
    query_row, query_column = np.divmod(np.arange(tall * wide), wide)
    key_row, key_column = np.divmod(np.arange(height * width), width)
    by_row = (down - stride * query_row) * line + right - stride * query_column
    return Grid(by_row, key_row * line + key_column, (down + height) * line)


def _with_token(grid: Grid) -> Grid:
    """One more position in front; its pairs with cells share a number only where the cell's part is the same.

    Numbers of the grid come first, then those of the token's query, the token's key, and the token with itself.
    """
    query = grid.length
    key = query + int(grid.by_key.max()) + 1
    return Grid(np.append(query, grid.by_row), np.append(key, grid.by_key), query + key + 1)
