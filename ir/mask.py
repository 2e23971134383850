"""Masks as sets of (query, key) pairs.

A mask is one condition. Its conjuncts are of two kinds: ``affine`` ones isl reasons about for symbolic sizes (tiles,
dead rows, counts); ``residual`` ones (they load values, or are not Presburger formulas) are evaluated pair by pair.
The visible pairs are those in all of them, so the affine part alone is an over-approximation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import sympy

from attnc.ir import mask_count, mask_isl, mask_names
from attnc.ir.index_eval import Env, evaluate
from attnc.ir.index_simplify import simplify
from attnc.ir.index_terms import axes_of, axis, sizes_of
from attnc.ir.index_text import show
from attnc.ir.types import Dim, size

if TYPE_CHECKING:
    import islpy

QUERY, KEY = axis("q"), axis("k")
QUERY_LENGTH, KEY_LENGTH = size("|q|"), size("|k|")
"""Run-time lengths of the two axes, as sizes that programs may use."""


@dataclass(frozen=True)
class MaskSet:
    """A conjunction of conditions over axes ``q``, ``k``, outer axes and sizes; build with :meth:`of`."""

    affine: tuple[sympy.Basic, ...]
    residual: tuple[sympy.Basic, ...]
    lengths: tuple[tuple[str, Dim], ...] = ()
    """Lengths of axes, where given, as the graph knows them."""

    @staticmethod
    def of(expr: sympy.Basic, axes: Mapping[str, Dim] | None = None) -> MaskSet:
        """Split a boolean index expression into affine and residual conjuncts; ``axes``: their lengths, where known."""
        lengths = tuple((axes or {}).items())
        parts = sympy.And.make_args(simplify(expr, {axis(a): (0, length - 1) for a, length in lengths}))
        conjuncts = sorted((p for p in parts if p != sympy.true), key=str)
        affine = tuple(c for c in conjuncts if mask_isl.is_affine(c))
        return MaskSet(affine, tuple(c for c in conjuncts if c not in affine), lengths)

    @property
    def expr(self) -> sympy.Basic:
        """The whole condition."""
        return sympy.And(*self.affine, *self.residual)

    @property
    def affine_expr(self) -> sympy.Basic:
        """The conjunction of the affine part."""
        return sympy.And(*self.affine)

    @property
    def residual_expr(self) -> sympy.Basic:
        """The conjunction of the residual part."""
        return sympy.And(*self.residual)

    @property
    def outer_axes(self) -> tuple[str, ...]:
        """Names of the outer axes the affine part depends on, sorted."""
        return tuple(sorted(axes_of(self.affine_expr) - {"q", "k"}))

    @property
    def params(self) -> tuple[sympy.Symbol, ...]:
        """Outer axes and sizes of the affine part: isl's parameters."""
        return tuple(axis(a) for a in self.outer_axes) + tuple(size(s) for s in sorted(sizes_of(self.affine_expr)))

    def to_isl(self) -> islpy.Set:
        """The affine part as an isl set of ``[q, k]`` ≥ 0, named ``x0``, ``x1``, with :attr:`params` ``p0``, ….

        Raises ``mask_isl.OutOfBudget``.
        """
        with mask_isl.budget() as context:
            space = mask_isl.Space(context, (QUERY, KEY), self.params)
            inside = mask_isl.bounds_of_symbols((QUERY, KEY, *self.params))
            return space.set(inside).intersect(space.set(self.affine_expr))

    @cached_property
    def visible_everywhere(self) -> bool:
        """True where every pair within the lengths is proved visible, for all sizes ≥ 1."""
        if self.residual or not self.affine:
            return not self.residual
        try:
            with mask_isl.budget() as context:
                pairs = mask_isl.Space(context, (QUERY, KEY), self._all_params)
                return pairs.set(self._inside).is_subset(pairs.set(self.affine_expr))
        except mask_isl.OutOfBudget:
            return False

    def rows_alive(self) -> bool:
        """True where every query row is proved to see a key, for all sizes and lengths ≥ 1."""
        if self.residual:
            return False
        try:
            with mask_isl.budget() as context:
                pairs = mask_isl.Space(context, (QUERY, KEY), self._all_params)
                inside, row = pairs.set(self._inside), pairs.map([QUERY])
                return inside.apply(row).is_subset(inside.intersect(pairs.set(self.affine_expr)).apply(row))
        except mask_isl.OutOfBudget:
            return False

    def is_causal(self) -> bool:
        """True where no key after its query is visible, as far as the affine part can prove it."""
        try:
            with mask_isl.budget() as context:
                pairs = mask_isl.Space(context, (QUERY, KEY), self._all_params)
                ahead = pairs.set(self._inside).intersect(pairs.set(self.affine_expr))
                return bool(ahead.intersect(pairs.set(sympy.Gt(KEY, QUERY, evaluate=False))).is_empty())
        except mask_isl.OutOfBudget:
            return False

    def reach(self) -> int | None:
        """How many keys back from its query a visible key can be, the query's own position included.

        None where there is no bound for all sizes, and where no bound is found.
        """
        try:
            with mask_isl.budget() as context:
                pairs = mask_isl.Space(context, (QUERY, KEY), self._all_params)
                seen = pairs.set(self._inside).intersect(pairs.set(self.affine_expr))
                back = mask_isl.largest(seen.apply(pairs.map([QUERY - KEY])))
        except mask_isl.OutOfBudget:
            return None
        return None if back is None else back + 1

    @property
    def _known_lengths(self) -> sympy.Basic:
        lengths = dict(self.lengths)
        return lengths_condition(lengths.get("q", QUERY_LENGTH), lengths.get("k", KEY_LENGTH))

    @property
    def _all_params(self) -> tuple[sympy.Symbol, ...]:
        others = sorted(self._known_lengths.free_symbols, key=str)
        return tuple(dict.fromkeys((*self.params, *others, QUERY_LENGTH, KEY_LENGTH)))

    @property
    def _inside(self) -> sympy.Basic:
        """The condition that a pair lies within the lengths."""
        bounds = mask_isl.bounds_of_symbols((QUERY, KEY, *self._all_params))
        return mask_isl.conjunction(bounds, self._known_lengths, QUERY < QUERY_LENGTH, KEY < KEY_LENGTH)

    def describe(self) -> str:
        """A name for people (``causal, window 16 & padding``); nothing depends on it."""
        return mask_names.describe(self.affine, self.residual)

    def count(self, sizes: Mapping[str, int], q_length: int, k_length: int) -> int:
        """The exact number of pairs in the affine part, summed over the points of :attr:`outer_axes`.

        Raises KeyError for a size without value, ValueError where the length of an outer axis was not given.
        """
        outer = self._outer(sizes)
        slabs = mask_count.tile_counts(self.affine_expr, sizes, q_length, k_length, 64, 64, outer)
        return sum(int(counts.sum()) for counts, _ in slabs)

    def outer_points(self, sizes: Mapping[str, int]) -> int:
        """The number of points :meth:`count` sums over: 1 where the affine part depends on no outer axis."""
        return math.prod(self._outer(sizes).values())

    def tile_shares(
        self, sizes: Mapping[str, int], q_length: int, k_length: int, block_m: int, block_n: int
    ) -> tuple[float, float, float]:
        """Shares of tiles (skip, partial, full) by the affine part; with a residual no tile counts as full. Raises as
        :meth:`count` does.
        """
        outer, tiles, skip, full = self._outer(sizes), 0, 0, 0
        slabs = mask_count.tile_counts(self.affine_expr, sizes, q_length, k_length, block_m, block_n, outer)
        for counts, areas in slabs:
            tiles += counts.size
            skip += int((counts == 0).sum())
            full += 0 if self.residual else int((counts == areas).sum())
        return skip / tiles, (tiles - skip - full) / tiles, full / tiles

    def _outer(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Numeric lengths of the outer axes that the affine part depends on."""
        lengths = dict(self.lengths)
        missing = set(self.outer_axes) - set(lengths)
        if missing:
            raise ValueError(
                f"counting the pairs of {show(self.expr)}: the lengths of axes {sorted(missing)} are not known"
            )
        return {a: int(evaluate(lengths[a], Env(sizes=sizes))) for a in self.outer_axes}


def lengths_condition(q_length: Dim, k_length: Dim) -> sympy.Basic:
    """What is known of the run-time lengths ``|q|`` and ``|k|``: that they equal these dimensions, where affine."""
    known = []
    for symbol, length in ((QUERY_LENGTH, q_length), (KEY_LENGTH, k_length)):
        condition = sympy.Eq(symbol, length)
        if condition != sympy.true and mask_isl.is_affine(condition):
            known.append(condition)
    return sympy.And(*known)
