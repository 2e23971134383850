"""Axes of a graph with a past: new tokens, earlier ones, both, and the places of a buffer.

What lies along all tokens (``E``) is there in full, in a step as in a whole sequence, so work along it is free: to the
rules it is as static as an encoder's positions are. Along new tokens (``S``) every row must keep to itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy

from attnc.compiler.derive.axes import Axes
from attnc.compiler.derive.known import BATCH, TOKEN_AXIS, Dims
from attnc.ir.types import Atom, Dim, same_dim, size

ALL, EARLIER, PLACES = "E", "P", "W"
"""Atoms: of the tokens seen so far, of those of them that are the past, and (with a length behind) of a buffer."""


@dataclass(frozen=True)
class PastAxes(Axes):
    """The named sizes of a graph with P earlier tokens and S new ones."""

    earlier: sympy.Symbol = field(default_factory=lambda: size("P"))

    @property
    def all(self) -> sympy.Expr:
        """The number of tokens in all, P + S."""
        return self.earlier + self.tokens

    def length(self, atom: Atom) -> sympy.Expr:
        """The length of an atom."""
        if isinstance(atom, str) and atom.startswith(PLACES):
            return sympy.Integer(int(atom[1:]))
        if atom in (ALL, EARLIER):
            return self.all if atom == ALL else self.earlier
        return super().length(atom)

    def atoms(self, length: Dim) -> tuple[Atom, ...] | None:
        """The axis of a dimension of this length, where the length tells it."""
        if isinstance(length, int):
            return (length,) if length != 1 else ()
        named = (BATCH, TOKEN_AXIS, ALL, EARLIER)
        return next(((atom,) for atom in named if same_dim(self.length(atom), length)), None)

    def is_encoder(self, length: Dim) -> bool:
        """No length is an encoder's."""
        return False


def along(dims: Dims, atom: str) -> tuple[int, ...]:
    """The dimensions that have an atom of this kind: its first letter counts."""
    return tuple(d for d, dim in enumerate(dims) if any(isinstance(a, str) and a[0] == atom for a in dim))
