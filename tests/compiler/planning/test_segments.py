"""Segments against dense masks: every live tile once, no masked pair in an unmasked tile, nothing visible left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnc.codegen.plan import Segment
from attnc.compiler.planning.segments import SegmentResult, segments
from attnc.ir import index as ix
from attnc.ir.mask import MaskSet
from attnc.ir.types import Dim, size

q, k, b, h = (ix.axis(name) for name in "qkbh")
S, P, T = size("S"), size("P"), size("T")
floor, Mod = sympy.floor, sympy.Mod
PADDING = sympy.Ne(ix.load("t0", k), 0)
Runner = Callable[..., Any]

CASES: dict[str, tuple[sympy.Basic, list[bool]]] = {
    "full": (sympy.true, [False]),
    "causal": (k <= q, [False, True]),
    "causal with cache": (k <= q + P, [False, True]),
    "causal bottom right": (k <= q + size("|k|") - size("|q|"), [False, True]),
    "narrow window": ((k <= q) & (k - q > -16), [True]),
    "wide window": ((k <= q + P) & (q + P - k < 200), [True, False, True]),
    "two-sided window": ((k - q <= 16) & (q - k <= 16), [True]),
    "wide two-sided window": ((k - q <= 100) & (q - k <= 100), [True, False, True]),
    "chunked": (sympy.Eq(floor(k / 128), floor(q / 128)), [False]),
    "chunked causal": ((k <= q) & sympy.Eq(floor(k / 128), floor(q / 128)), [False, True]),
    "prefix": ((k < 100) | (k <= q), [False, True]),
    "padding": (PADDING, [True]),
    "causal and padding": ((k <= q) & PADDING, [True]),
    "padding or causal": ((k <= q) | PADDING, [True]),
    "dilated": ((k <= q) & sympy.Eq(Mod(q - k, 4), 0), [True]),
    "window per head": ((k <= q) & (q - k < 64 * (h + 1)), [True, False, True]),
}


def plan(expr: sympy.Basic, q_size: Dim = S, k_size: Dim = T, block_m: int = 32, block_n: int = 32) -> SegmentResult:
    return segments(MaskSet.of(expr), ["b", "h"], block_m, block_n, q_size, k_size)


def visits(
    run: Runner, found: tuple[Segment, ...], axes: dict[str, int], sizes: dict[str, int]
) -> list[tuple[int, bool]]:
    """(key tile, needs_mask) in the order a kernel takes them."""
    order = []
    for segment in found:
        if segment.guard_scope == "segment" and segment.guard is not None and not run(segment.guard, axes, sizes):
            continue
        for tile in range(run(segment.lo, axes, sizes), run(segment.hi, axes, sizes), segment.step):
            if (
                segment.guard_scope == "segment"
                or segment.guard is None
                or run(segment.guard, {**axes, "tk": tile}, sizes)
            ):
                order.append((tile, segment.needs_mask))
    return order


def check(
    run: Runner,
    expr: sympy.Basic,
    result: SegmentResult,
    lengths: tuple[int, int],
    blocks: tuple[int, int],
    sizes: dict[str, int],
    head: int = 0,
) -> int:
    """Assert what segments promise, for every query tile; the number of tiles visited without a visible pair."""
    (q_length, k_length), (block_m, block_n) = lengths, blocks
    sizes = {**sizes, "|q|": q_length, "|k|": k_length}
    env = ix.Env(
        {"q": np.arange(q_length)[:, None], "k": np.arange(k_length)[None, :], "h": head},
        sizes,
        {"t0": np.ones(k_length)},
    )
    visible = np.broadcast_to(ix.evaluate(expr, env), (q_length, k_length))
    extra = 0
    for tq in range(-(-q_length // block_m)):
        order = visits(run, result.segments, {"tq": tq, "h": head, "b": 0}, sizes)
        tiles = [tile for tile, _ in order]
        assert len(set(tiles)) == len(tiles), f"visited twice: {order}"
        assert set(tiles) <= set(range(-(-k_length // block_n)))
        masks = dict(order)
        for tk in range(-(-k_length // block_n)):
            pairs = visible[tq * block_m : (tq + 1) * block_m, tk * block_n : (tk + 1) * block_n]
            assert tk in masks or not pairs.any(), f"tile ({tq}, {tk}) has a visible pair and is skipped"
            assert masks.get(tk, True) or pairs.all(), f"tile ({tq}, {tk}) has a masked pair and no mask"
            extra += tk in masks and not pairs.any()
    return extra


@pytest.mark.parametrize("name", CASES)
def test_known_masks_have_the_expected_segments(name: str, run_program: Runner) -> None:
    expr, kinds = CASES[name]
    result = plan(expr)
    assert [s.needs_mask for s in result.segments] == kinds
    assert not result.note and all(s.guard is None and s.step == 1 for s in result.segments)
    for lengths in ((1, 1), (1, 300), (300, 1), (33, 97), (256, 256), (200, 500)):
        for p in (1, 40):
            check(run_program, expr, result, lengths, (32, 32), {"P": p, "S": lengths[0], "T": lengths[1]}, head=p % 3)


def test_causal_ranges_are_short() -> None:
    unmasked, masked = plan(k <= q, S, S, 64, 64).segments
    assert len(unmasked.lo) == 1 and unmasked.hi == masked.lo
    assert len(unmasked.hi) <= 7 and len(masked.hi) <= 9


def test_tiles_of_the_mask_are_exact_where_lengths_are_whole_tiles(run_program: Runner) -> None:
    for expr in (k <= q, (k <= q) & (k - q > -100), (k < 100) | (k <= q), (k - q <= 16) & (q - k <= 16)):
        assert check(run_program, expr, plan(expr, S, S), (256, 256), (32, 32), {"S": 256}) == 0


def test_scattered_tiles_are_guarded_one_by_one(run_program: Runner) -> None:
    expr = (k < 32) | ((q - k <= 40) & (k - q <= 40))
    result = plan(expr)
    assert "each tile is tested" in result.note
    assert [(s.guard_scope, s.needs_mask) for s in result.segments] == [("tile", False), ("tile", True)]
    assert check(run_program, expr, result, (320, 320), (32, 32), {}) == 0


def test_scattered_tiles_with_a_residual_are_guarded(run_program: Runner) -> None:
    expr = ((k < 32) | ((q - k <= 40) & (k - q <= 40))) & PADDING
    result = plan(expr)
    assert [(s.guard_scope, s.needs_mask) for s in result.segments] == [("tile", True)]
    assert check(run_program, expr, result, (320, 320), (32, 32), {}) == 0


def test_tiles_that_only_the_residual_may_hide_from_are_told_apart(run_program: Runner) -> None:
    expr = (k <= q) & PADDING
    inner, border = segments(MaskSet.of(expr), [], 32, 32, S, S, residual_apart=True).segments
    assert (inner.needs_mask, inner.residual, border.needs_mask, border.residual) == (True, True, True, False)
    plain_inner, plain_border = plan(k <= q, S, S).segments
    assert (inner.lo, inner.hi) == (plain_inner.lo, plain_inner.hi)
    assert (border.lo, border.hi) == (plain_border.lo, plain_border.hi)
    (both,) = segments(MaskSet.of(expr), [], 32, 32, S, S).segments
    assert (both.needs_mask, both.residual) == (True, False)


def test_a_relation_between_the_lengths_is_used() -> None:
    assert plan(k >= S + 32, S, S).segments == ()
    assert plan(k >= S + 32, S, T).segments != ()


def test_a_spent_budget_visits_every_tile(run_program: Runner) -> None:
    result = segments(MaskSet.of(k <= q), [], 32, 32, S, S, max_operations=100)
    assert "every tile is visited" in result.note
    assert [s.needs_mask for s in result.segments] == [True]
    assert check(run_program, k <= q, result, (70, 70), (32, 32), {}) > 0


def test_a_coarser_plan_still_skips_tiles(run_program: Runner) -> None:
    expr = (k <= q + P) & (q + P - k < 200)
    result = segments(MaskSet.of(expr), [], 64, 48, S, S + P, max_operations=60_000)
    assert "not told apart" in result.note
    assert [s.needs_mask for s in result.segments] == [True]
    check(run_program, expr, result, (700, 740), (64, 48), {"P": 40})


def test_an_unknown_outer_axis_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no outer axis \['h'\]"):
        segments(MaskSet.of(k <= q + h), ["b"], 32, 32, S, S)


rows = st.sampled_from([q, q + P, q + size("|k|") - size("|q|"), q - 3])
atoms = st.one_of(
    rows.map(lambda r: k <= r),
    st.tuples(rows, st.integers(0, 60)).map(lambda x: (k <= x[0]) & (x[0] - k < x[1])),
    st.tuples(rows, st.integers(0, 40), st.integers(0, 40)).map(lambda x: (k - x[0] <= x[1]) & (x[0] - k <= x[2])),
    st.tuples(rows, st.sampled_from([3, 16, 24, 64])).map(lambda x: sympy.Eq(floor(k / x[1]), floor(x[0] / x[1]))),
    st.integers(2, 5).map(lambda n: sympy.Eq(Mod(q - k, n), 0)),
    st.integers(2, 40).map(lambda n: Mod(k, n) >= n - 2),
    st.integers(0, 50).map(lambda n: k < n),
    st.integers(0, 50).map(lambda n: q < n),
    st.just(k < P),
    st.just(PADDING),
    st.just(k <= q + 8 * h),
)
masks = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda x: sympy.And(*x)),
        st.tuples(inner, inner).map(lambda x: sympy.Or(*x)),
        inner.map(sympy.Not),
    ),
    max_leaves=3,
)
BLOCKS = st.sampled_from([(16, 16), (32, 16), (16, 32), (16, 24)])
LENGTHS = st.sampled_from([1, 2, 15, 16, 17, 48, 70, 100])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    masks,
    BLOCKS,
    st.sampled_from([(S, S), (S, S + P), (S, size("T"))]),
    st.lists(st.tuples(LENGTHS, LENGTHS), min_size=3, max_size=3),
)
def test_random_masks(
    run_program: Runner,
    expr: sympy.Basic,
    blocks: tuple[int, int],
    dims: tuple[Dim, Dim],
    lengths: list[tuple[int, int]],
) -> None:
    result = plan(expr, *dims, *blocks)
    for q_length, other in lengths:
        sizes = {"S": q_length, "T": other, "P": other}
        k_length = int(ix.evaluate(sympy.sympify(dims[1]), ix.Env(sizes=sizes)))
        check(run_program, expr, result, (q_length, k_length), blocks, sizes, head=other % 3)
