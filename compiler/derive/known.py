"""What the analysis knows of a value: what it depends on, and which axis each of its dimensions is.

A dimension is a row-major product of *atoms*: ``B`` (request), ``S`` (token), ``E``, ``E1``, … (encoder positions),
``R2`` (the two routed slots of each token), ``D`` (the 2·S − 1 differences of two positions, in order), or a literal.
Sizes alone don't tell axes apart: a permuted ``[S, B]`` has the length of ``[B, S]``.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

from attnc.ir.types import Atom
from attnc.ir.values import Value

BATCH, TOKEN_AXIS, ENCODER_AXIS, DIFFERENCE = "B", "S", "E", "D"

Dims = tuple[tuple[Atom, ...], ...]
"""The atoms of each dimension; a dimension of length 1 has none."""


class Kind(enum.IntEnum):
    """What a value depends on; an operator's result depends on the most its operands do."""

    UNIFORM = 0
    """Weights and constants only."""
    POSITION = 1
    """The positions along ``S`` too, and *prefix-stable*: element i is the same for every total length above i. Along
    ``D`` the same of the difference i − (S − 1)."""
    LENGTH = 2
    """Positions and sizes: the total length or the batch enters."""
    REQUEST = 3
    """The encoder's input of its own request."""
    TOKEN = 4
    """The token (and request) of its own place along ``B`` and ``S``, and no other."""


class Role(enum.Enum):
    """Integers that stand for places, not for data: what they may index is known, computing with them isn't."""

    BATCH_INDEX = "the number of each request"
    ROW_NUMBER = "the number of each routed slot"
    ORDER = "the routed slot at each place of an order by expert"
    TOKEN_ORDER = "the token at each place of an order by expert"
    INVERSE = "the place of each routed slot in an order by expert"
    COUNT = "how many slots each expert got"
    OFFSET = "where each expert's slots begin or end"
    SORTED = "the expert of each place, in order"
    SUFFIX = "the end of a table, as long as the sequence"
    PAST = "what is kept of earlier tokens"


@dataclass(frozen=True)
class Known:
    """One tensor."""

    kind: Kind
    dims: Dims
    role: Role | None = None
    source: Value | None = field(default=None, compare=False)
    """Of routing roles the sorted value, so that orders of different routers aren't mixed up; of a suffix its table."""

    def having(self, atom: str) -> tuple[int, ...]:
        """The dimensions that contain an atom."""
        return tuple(i for i, dim in enumerate(self.dims) if atom in dim)

    @property
    def symbolic(self) -> frozenset[str]:
        """The named atoms of all dimensions, those of the encoder included."""
        return frozenset(atom for dim in self.dims for atom in dim if isinstance(atom, str))


def is_static(dim: tuple[Atom, ...]) -> bool:
    """Whether no request and no token is along a dimension: a literal, or positions of the encoder."""
    return not any(isinstance(atom, str) and atom[0] != ENCODER_AXIS for atom in dim)


def same_axis(a: tuple[Atom, ...], b: tuple[Atom, ...]) -> bool:
    """Whether two dimensions are the same axis, however their literal parts are cut: (B, 4) and (B, 2, 2)."""
    return _merged(a) == _merged(b)


def _merged(dim: tuple[Atom, ...]) -> tuple[Atom, ...]:
    """The atoms with neighbouring literals multiplied."""
    out: list[Atom] = []
    for atom in dim:
        if isinstance(atom, int) and out and isinstance(out[-1], int):
            out[-1] = out[-1] * atom
        else:
            out.append(atom)
    return tuple(out)


def count(dim: tuple[Atom, ...]) -> int:
    """The product of a dimension's literals."""
    return math.prod(atom for atom in dim if isinstance(atom, int))
