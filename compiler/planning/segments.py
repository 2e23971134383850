"""Which key tiles a query tile visits, in closed form for symbolic lengths.

For query tile tq, with rows q in [BM·tq, BM·tq + BM) and tiles tk of BN keys, isl computes
    live(tq) = tiles with a visible pair,   full(tq) = tiles with no masked pair,   both within 0 ≤ tk < ⌈|k| / BN⌉.
Rows past |q| and keys past |k| are judged by the formula like all others: live only grows and full only shrinks
(sound), and bounds stay one short expression instead of a case per ragged edge.

Where both are intervals, [l, h) and [f, g), the segments are masked [l, f), full [f, g), masked [g, h). Bounds as isl
gives them hold only where the set isn't empty; so several readings are tried, simplest first, and one is taken only
when isl proves, for all parameters, that the segments are disjoint, cover exactly live, and run unmasked only in full.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from attnc.codegen.plan import Segment
from attnc.compiler.planning.lower import lower
from attnc.ir import mask_isl
from attnc.ir.index_terms import axis, where
from attnc.ir.mask import KEY, KEY_LENGTH, QUERY, QUERY_LENGTH, MaskSet, lengths_condition
from attnc.ir.types import Dim

QUERY_TILE, KEY_TILE = axis("tq"), axis("tk")

ANY_TILE = sympy.Symbol("tk", integer=True)
"""A tile index that sympy may not assume ≥ 0: a range from −1 on must stay visible to the proof."""

MAX_INSTRUCTIONS = 200
"""Longest ranges and conditions worth evaluating for every query tile; beyond it a coarser plan is taken."""


@dataclass(frozen=True)
class SegmentResult:
    """At most three segments, and a sentence for the report where they are not plain ranges (else empty)."""

    segments: tuple[Segment, ...]
    note: str = ""


@dataclass(frozen=True)
class Span:
    """Tiles lo ≤ tk < hi as index expressions over tq, outer axes and sizes."""

    lo: Any
    hi: Any
    needs_mask: bool

    @property
    def condition(self) -> sympy.Basic:
        return mask_isl.conjunction(
            sympy.Ge(ANY_TILE, self.lo, evaluate=False), sympy.Lt(ANY_TILE, self.hi, evaluate=False)
        )

    def segment(self, guard: sympy.Basic | None = None) -> Segment:
        """``guard``: a condition on each tile."""
        program = None if guard is None else lower(guard)
        return Segment(
            lower(self.lo), lower(self.hi), self.needs_mask, 1, program, "segment" if guard is None else "tile"
        )


def segments(
    mask: MaskSet,
    outer_axes: Sequence[str],
    block_m: int,
    block_n: int,
    q_size: Dim,
    k_size: Dim,
    max_operations: int = mask_isl.MAX_OPERATIONS,
    residual_apart: bool = False,
) -> SegmentResult:
    """The key tiles of one query tile, as programs over ``tq``, ``outer_axes``, sizes ``|q|``, ``|k|`` and the mask's.

    ``q_size``, ``k_size``: the lengths as the graph knows them; a relation between them sharpens the proofs. Right for
    all positive lengths. ``residual_apart``: tiles that only the residual part of the mask may hide from are told apart
    from those on the border of the affine part. Raises ValueError where the mask depends on an axis that is not in
    ``outer_axes``.
    """
    unknown = set(mask.outer_axes) - set(outer_axes)
    if unknown:
        raise ValueError(
            f"planning tiles of {mask.describe()}: no outer axis {sorted(unknown)}, there are {list(outer_axes)}"
        )
    everything = Span(sympy.Integer(0), _tiles(KEY_LENGTH, block_n), bool(mask.affine or mask.residual))
    if not mask.affine:
        return SegmentResult((everything.segment(),))
    for exact in (True, False) if residual_apart or not mask.residual else (False,):
        result = _attempt(mask, block_m, block_n, lengths_condition(q_size, k_size), everything, exact, max_operations)
        if result is not None:
            if exact and mask.residual:
                result = dataclasses.replace(result, segments=tuple(map(_with_residual, result.segments)))
            coarse = (
                "" if exact or mask.residual else "tiles without a masked pair are not told apart within the budget"
            )
            return dataclasses.replace(result, note=result.note or coarse)
    return SegmentResult(
        (everything.segment(),), "tile ranges are not worked out within the budget: every tile is visited"
    )


def _with_residual(segment: Segment) -> Segment:
    """A segment of the affine part alone, where there is a residual one too."""
    return segment if segment.needs_mask else dataclasses.replace(segment, needs_mask=True, residual=True)


def _attempt(
    mask: MaskSet,
    block_m: int,
    block_n: int,
    lengths: sympy.Basic,
    everything: Span,
    exact: bool,
    max_operations: int,
) -> SegmentResult | None:
    """A plan, or None where it takes too many operations or instructions. Not ``exact``: no tile counts as full."""
    try:
        with mask_isl.budget(max_operations) as context:
            result = _Planner(context, mask, block_m, block_n, lengths, exact).plan(everything)
    except mask_isl.OutOfBudget:
        return None
    programs = (p for s in result.segments for p in (s.lo, s.hi, s.guard or ()))
    return result if sum(map(len, programs)) <= MAX_INSTRUCTIONS else None


def _tiles(length: sympy.Expr, block: int) -> sympy.Expr:
    return sympy.floor((length + block - 1) / block)


class _Planner:
    """Sets of key tiles ``tk``, over parameters: the mask's, ``|q|``, ``|k|`` and ``tq``."""

    def __init__(
        self, context: Any, mask: MaskSet, block_m: int, block_n: int, lengths: sympy.Basic, exact: bool
    ) -> None:
        params = (*mask.params, *(s for s in (QUERY_LENGTH, KEY_LENGTH) if s not in mask.params), QUERY_TILE)
        extra = tuple(sorted(lengths.free_symbols - set(params), key=str))
        self.space = mask_isl.Space(context, (ANY_TILE,), params)
        wide = mask_isl.Space(context, (), (*params, *extra))
        bounds = mask_isl.conjunction(
            mask_isl.bounds_of_symbols((*params, *extra)), block_m * QUERY_TILE < QUERY_LENGTH
        )
        self.assumed = self.space.domain(
            mask_isl.conjunction(mask_isl.bounds_of_symbols(params), block_m * QUERY_TILE < QUERY_LENGTH)
        )
        self.known = mask_isl.drop_params(wide.domain(mask_isl.conjunction(bounds, lengths)), len(params), len(extra))
        pairs = mask_isl.Space(context, (QUERY, KEY), params)
        rows = mask_isl.conjunction(
            block_m * QUERY_TILE <= QUERY, QUERY < block_m * (QUERY_TILE + 1), sympy.Ge(KEY, 0, evaluate=False)
        )
        visible, tile = pairs.set(mask.affine_expr), pairs.map([sympy.floor(KEY / block_n)])
        inside = pairs.set(rows).intersect_params(self.assumed)
        present = self.space.set(mask_isl.conjunction(ANY_TILE >= 0, block_n * ANY_TILE < KEY_LENGTH))
        self.live = inside.intersect(visible).apply(tile).intersect(present).coalesce()
        masked = inside.subtract(visible).apply(tile)
        self.full = self.live.subtract(masked if exact else self.live).coalesce()
        self.build = mask_isl.ast_build(self.assumed)

    def plan(self, everything: Span) -> SegmentResult:
        """``everything``: the span of all tiles."""
        if self._within(self.live).is_empty():
            return SegmentResult(())
        if self._is_interval(self.live) and self._is_interval(self.full):
            for spans in self._readings():
                kept = tuple(s for s in spans if not self._within(self.space.set(s.condition)).is_empty())
                if self._proves(kept):
                    return SegmentResult(tuple(s.segment() for s in kept))
        return self._guarded(everything)

    def _within(self, tiles: Any) -> Any:
        return tiles.intersect_params(self.known)

    def _is_interval(self, tiles: Any) -> bool:
        return bool(self._within(mask_isl.hull(tiles)).is_subset(tiles))

    def _ends(self, tiles: Any) -> tuple[Any, Any]:
        """First tile and one past the last, right where ``tiles`` isn't empty."""
        ends = (tiles.dim_min(0), tiles.dim_max(0).add_constant_val(1))
        lo, hi = (self.space.read(self.build.expr_from_pw_aff(e.coalesce().gist(self.assumed))) for e in ends)
        return lo, hi

    def _occupied(self, tiles: Any) -> sympy.Basic:
        """The condition that ``tiles`` isn't empty."""
        return self.space.condition(tiles.params(), self.assumed)

    def _readings(self) -> Iterator[tuple[Span, ...]]:
        """Candidate segments, simplest first."""
        lo, hi = self._ends(self.live)
        if self.full.is_empty():
            yield (Span(lo, hi, True),)
            occupied = self._occupied(self.live)
            yield (Span(where(occupied, lo, 0), where(occupied, hi, 0), True),)
            return
        first, last = self._ends(self.full)
        yield Span(lo, first, True), Span(first, last, False), Span(last, hi, True)
        yield (
            Span(lo, sympy.Min(first, hi, evaluate=False), True),
            Span(first, last, False),
            Span(sympy.Max(first, last, lo, evaluate=False), hi, True),
        )
        occupied = self._occupied(self.full)
        first, last = where(occupied, first, hi), where(occupied, last, hi)
        yield Span(lo, first, True), Span(first, last, False), Span(last, hi, True)

    def _proves(self, spans: tuple[Span, ...]) -> bool:
        """Disjoint, together exactly the live tiles, unmasked only in full ones."""
        union = self.space.set(sympy.false)
        for span in spans:
            tiles = self._within(self.space.set(span.condition))
            if not tiles.is_disjoint(union) or not (span.needs_mask or tiles.is_subset(self.full)):
                return False
            union = union.union(tiles)
        return bool(union.is_equal(self._within(self.live)))

    def _guarded(self, everything: Span) -> SegmentResult:
        """Both kinds of tile over one range, each with its condition per tile."""
        found = []
        for tiles, needs_mask in ((self.full, False), (self.live.subtract(self.full), True)):
            if self._within(tiles).is_empty():
                continue
            guard = self._tile_condition(tiles)
            found.append(Span(everything.lo, everything.hi, needs_mask).segment(guard))
        return SegmentResult(tuple(found), "visible tiles are no simple ranges: each tile is tested")

    def _tile_condition(self, tiles: Any) -> sympy.Basic:
        """Membership of ``tk``, as a condition."""
        space = mask_isl.Space(self.space.context, (ANY_TILE,), (*self.space.params, KEY_TILE))
        named = space.set(sympy.Eq(ANY_TILE, KEY_TILE))
        assumed = self.assumed.intersect(space.domain(sympy.Ge(KEY_TILE, 0, evaluate=False)))
        return space.condition(tiles.intersect(named).params(), assumed)
