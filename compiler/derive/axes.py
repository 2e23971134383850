"""Lengths of atoms, and views as splits and merges of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import sympy

from attnc.compiler.derive.known import BATCH, DIFFERENCE, ENCODER_AXIS, TOKEN_AXIS, Dims
from attnc.ir.types import Atom, Dim, as_dim, same_dim


@dataclass(frozen=True)
class Axes:
    """The named sizes of one graph."""

    batch: sympy.Symbol
    tokens: sympy.Symbol
    encoder: sympy.Symbol | None = None
    """The length of the encoder's input."""
    longest: int | None = None
    """The greatest number of tokens the graph holds for."""
    extents: dict[str, sympy.Expr] = field(default_factory=dict)
    """Lengths that are made of the encoder's, by atom."""

    def length(self, atom: Atom) -> sympy.Expr:
        """The length of an atom."""
        if isinstance(atom, int):
            return sympy.Integer(atom)
        if atom[0] == "R":
            return self.batch * self.tokens * int(atom[1:])
        if atom == DIFFERENCE:
            return 2 * self.tokens - 1
        if atom in self.extents:
            return self.extents[atom]
        return {BATCH: self.batch, TOKEN_AXIS: self.tokens}[atom]

    def atoms(self, length: Dim) -> tuple[Atom, ...] | None:
        """The axis of a dimension of this length, where the length tells it: a literal, B, S, or the encoder's."""
        if length == 1:
            return ()
        if isinstance(length, int):
            return (length,)
        if self.is_encoder(length):
            return (self._extent(length),)
        return next(((name,) for name in (BATCH, TOKEN_AXIS, DIFFERENCE) if self.length(name) == length), None)

    def is_encoder(self, length: Dim) -> bool:
        """Whether a length is made of the encoder's."""
        return self.encoder is not None and getattr(length, "free_symbols", set()) == {self.encoder}

    def _extent(self, length: sympy.Expr) -> str:
        """The atom of a length that is made of the encoder's."""
        known = next((atom for atom, extent in self.extents.items() if same_dim(extent, length)), None)
        if known is None:
            known = f"{ENCODER_AXIS}{len(self.extents) or ''}"
            self.extents[known] = length
        return known

    def label(self, shape: Sequence[Dim]) -> Dims | None:
        """The axes of a shape whose dimensions are literals or named sizes, else None."""
        found = [self.atoms(length) for length in shape]
        return None if any(dim is None for dim in found) else tuple(dim for dim in found if dim is not None)

    def regroup(self, dims: Dims, shape: Sequence[Dim]) -> Dims | None:
        """The axes of a view of another shape; None where it cuts a named axis or turns the order of axes."""
        left = [atom for dim in dims for atom in dim]
        out = []
        for length in shape:
            taken = self._take(left, sympy.sympify(length))
            if taken is None:
                return None
            out.append(taken)
        return None if left else tuple(out)

    def _take(self, left: list[Atom], length: sympy.Expr) -> tuple[Atom, ...] | None:
        """The first atoms that make up ``length``, removed from ``left``; a literal may be cut."""
        taken: list[Atom] = []
        while length != 1:
            if not left:
                return None
            atom = left.pop(0)
            rest = sympy.cancel(length / self.length(atom))
            if rest.is_integer and (rest.is_number or rest.as_numer_denom()[1] == 1):
                taken.append(atom)
                length = rest
            elif isinstance(atom, int) and length.is_Integer and atom % int(length) == 0:
                taken.append(int(length))
                left.insert(0, atom // int(length))
                length = sympy.Integer(1)
            else:
                return None
        return tuple(taken)

    def simplified(self, length: Dim) -> Dim:
        """A length without the minima and maxima that the range of S decides: max(0, 512 − S) is 512 − S up to 512."""
        if isinstance(length, int) or self.longest is None or not length.has(sympy.Max, sympy.Min):
            return length
        decided = length.replace(lambda e: isinstance(e, sympy.Max | sympy.Min), self._decided)
        return as_dim(sympy.expand(decided))

    def _decided(self, expr: sympy.Basic) -> sympy.Basic:
        """The operand of a minimum or maximum that it always is, where both are affine in S."""
        for chosen in expr.args:
            rest = [sympy.expand(chosen - other) * (1 if isinstance(expr, sympy.Max) else -1) for other in expr.args]
            if all(self._nonnegative(gap) for gap in rest):
                return chosen
        return expr

    def _nonnegative(self, gap: sympy.Expr) -> bool:
        """Whether an affine function of S is nowhere negative."""
        if gap.free_symbols - {self.tokens} or not gap.is_polynomial(self.tokens) or sympy.degree(gap, self.tokens) > 1:
            return False
        return all(bool(gap.subs(self.tokens, end) >= 0) for end in (1, self.longest))
