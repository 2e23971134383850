"""Mask sets against dense evaluation: splitting, proofs, exact counts, names."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from attnc.ir import index as ix
from attnc.ir import mask_count, mask_isl
from attnc.ir.mask import MaskSet
from attnc.ir.types import Dim, size

q, k, b, h = (ix.axis(name) for name in "qkbh")
S, P = size("S"), size("P")
floor, Mod = sympy.floor, sympy.Mod
PADDING = sympy.Ne(ix.load("t0", b, k), 0)
DOCUMENTS = sympy.Eq(ix.load("t1", b, q), ix.load("t1", b, k))

NAMED = {
    "full": sympy.true,
    "causal": k <= q,
    "causal, window 16": (k <= q) & (k - q > -16),
    "window -16..+16": (k - q <= 16) & (q - k <= 16),
    "window 15 back": k - q > -16,
    "lookahead 4": k <= q + 4,
    "chunked 512": sympy.Eq(floor(k / 512), floor((q + P) / 512)),
    "prefix 100": (k < 100) | (k <= q),
    "global 64 + window -256..+256": (k < 64) | (q < 64) | ((q - k <= 256) & (k - q <= 256)),
    "causal, dilated 4": (k <= q) & sympy.Eq(Mod(q - k, 4), 0),
    "causal, custom": (k <= q) & ((q - k < 128) | (Mod(k, 128) >= 120)),
    "padding": PADDING,
    "documents": DOCUMENTS,
    "causal & padding": (k <= q) & PADDING,
    "causal & documents & padding": (k <= q) & PADDING & DOCUMENTS,
    "tensor": sympy.Ne(ix.load("t2", b, q, k), 0),
    "loaded": k <= ix.load("t3", b),
    "custom": q * S <= k,
}


@pytest.mark.parametrize("name", NAMED)
def test_names(name: str) -> None:
    assert MaskSet.of(NAMED[name]).describe() == name


def test_a_cache_offset_is_causal() -> None:
    assert MaskSet.of((k <= q + P) & (q + P - k < 16)).describe() == "causal, window 16"


def test_conjuncts_are_split() -> None:
    mask = MaskSet.of((k <= q) & PADDING & ((k < 4) | DOCUMENTS) & (q * S <= k) & (k < S), axes={"k": S})
    assert mask.affine == (k <= q,)
    assert set(mask.residual) == {PADDING, (k < 4) | DOCUMENTS, q * S <= k}
    assert mask.affine_expr == (k <= q)
    assert mask.outer_axes == ()
    assert MaskSet.of(k <= q + h + P).params == (h, P)


@pytest.mark.parametrize(
    ("expr", "everywhere"),
    [
        (sympy.true, True),
        (k < S, True),
        ((k <= q) | (k > q), True),
        (floor(k / 4) * 4 + Mod(k, 4) >= k, True),
        (k <= q, False),
        (PADDING, False),
    ],
)
def test_visible_everywhere(expr: sympy.Basic, everywhere: bool) -> None:
    assert MaskSet.of(expr, {"q": S, "k": S}).visible_everywhere is everywhere


@pytest.mark.parametrize(
    ("expr", "q_length", "k_length", "alive"),
    [
        (k <= q, S, S, True),
        (k <= q, S, P, True),
        ((k <= q) & (k - q > -16), S, S, True),
        ((k <= q) & (k - q > -16), S, P, False),
        ((k <= q + P) & (q + P - k < 16), S, S + P, True),
        (k < q, S, S, False),
        (k > q, S, S, False),
        (k > q, S, S + 1, True),
        (sympy.Eq(floor(k / 8), floor(q / 8)), S, S, True),
        (sympy.Eq(Mod(q - k, 4), 0) & (k <= q), S, S, True),
        (sympy.Eq(Mod(k, 4), 3), S, S, False),
        (sympy.Eq(Mod(k, 4), 3), S, 4 * S, True),
        (k < P, S, S, True),
        (PADDING & (k <= q), S, S, False),
        (k <= q - h + S, S, S, False),
    ],
)
def test_rows_alive(expr: sympy.Basic, q_length: Dim, k_length: Dim, alive: bool) -> None:
    assert MaskSet.of(expr, {"q": q_length, "k": k_length}).rows_alive() is alive


def test_beyond_the_budget_nothing_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    full = MaskSet((sympy.Ge(k + q, floor(k / 4), evaluate=False),), ())
    assert full.visible_everywhere and full.rows_alive()
    monkeypatch.setattr(mask_isl.budget, "__defaults__", (50,))
    monkeypatch.setattr(mask_isl.budget.__wrapped__, "__defaults__", (50,))  # type: ignore[attr-defined]
    again = MaskSet(full.affine, ())
    assert not again.visible_everywhere and not again.rows_alive()


def test_an_error_of_isl_is_not_taken_for_a_spent_budget() -> None:
    import islpy

    with pytest.raises(islpy.Error), mask_isl.budget() as context:
        islpy.Set("{ [i] : i >>>> 0 }", context)


def test_to_isl() -> None:
    assert MaskSet.of((k <= q) & PADDING).to_isl() is not None
    pairs = MaskSet.of((k <= q) & (q < 3) & PADDING).to_isl()
    assert pairs.count_val().to_python() == 6


def dense(expr: sympy.Basic, sizes: dict[str, int], q_length: int, k_length: int, **outer: int) -> np.ndarray[Any, Any]:
    env = ix.Env({"q": np.arange(q_length)[:, None], "k": np.arange(k_length)[None, :], **outer}, sizes)
    return np.broadcast_to(ix.evaluate(expr, env), (q_length, k_length))


rows = st.sampled_from([q, q + P, q - 3, 2 * q])
atoms = st.one_of(
    rows.map(lambda r: k <= r),
    st.tuples(rows, st.integers(0, 40)).map(lambda x: x[0] - k < x[1]),
    st.tuples(rows, st.integers(2, 20)).map(lambda x: sympy.Eq(floor(k / x[1]), floor(x[0] / x[1]))),
    st.tuples(rows, st.integers(2, 5)).map(lambda x: sympy.Eq(Mod(x[0] - k, x[1]), 0)),
    st.tuples(st.integers(2, 9), st.integers(0, 8)).map(lambda x: Mod(k, x[0]) >= x[1]),
    st.integers(0, 30).map(lambda n: k < n),
    st.integers(0, 30).map(lambda n: q >= n),
    st.just(k < sympy.Min(P, q + 2)),
    st.just(sympy.Abs(q - k) <= P),
    st.just(ix.where(k < P, q, k) <= 9),
    st.just(sympy.Ne(k, q)),
)
masks = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda x: sympy.And(*x)),
        st.tuples(inner, inner).map(lambda x: sympy.Or(*x)),
        inner.map(sympy.Not),
    ),
    max_leaves=4,
)


@settings(max_examples=30, deadline=None)
@given(masks, st.integers(1, 90), st.integers(1, 150), st.integers(1, 50))
def test_counts_are_exact(expr: sympy.Basic, q_length: int, k_length: int, p: int) -> None:
    mask = MaskSet.of(expr)
    assert not mask.residual
    visible = dense(expr, {"P": p}, q_length, k_length)
    assert mask.count({"P": p}, q_length, k_length) == visible.sum()
    tiles = [visible[i : i + 16, j : j + 32] for i in range(0, q_length, 16) for j in range(0, k_length, 32)]
    skip, full = np.mean([not t.any() for t in tiles]), np.mean([t.all() for t in tiles])
    assert mask.tile_shares({"P": p}, q_length, k_length, 16, 32) == pytest.approx((skip, 1 - skip - full, full))


@settings(max_examples=20, deadline=None)
@given(masks, st.integers(1, 12), st.integers(1, 12))
def test_proofs_hold(expr: sympy.Basic, q_length: int, k_length: int) -> None:
    mask = MaskSet.of(expr)
    for p in (1, 2, 7):
        visible = dense(expr, {"P": p}, q_length, k_length)
        assert visible.all() or not mask.visible_everywhere
        assert visible.any(1).all() or not mask.rows_alive()


def test_counts_sum_over_outer_axes_the_mask_depends_on() -> None:
    expr = (k <= q) & (q - k < 4 * (h + 1))
    mask = MaskSet.of(expr, {"h": P, "b": S})
    assert mask.count({"P": 3}, 20, 20) == sum(dense(expr, {}, 20, 20, h=i).sum() for i in range(3))
    assert mask.outer_points({"P": 3}) == 3
    with pytest.raises(ValueError, match=r"axes \['h'\]"):
        MaskSet.of(expr).count({}, 20, 20)


def test_a_residual_leaves_no_full_tile() -> None:
    mask = MaskSet.of((k <= q) & PADDING)
    assert mask.tile_shares({}, 64, 64, 16, 16) == (6 / 16, 10 / 16, 0.0)
    assert mask.count({}, 4, 4) == 10


@pytest.mark.parametrize("name", ["causal", "causal, window 16", "chunked 512", "prefix 100"])
def test_large_counts_do_not_visit_every_pair(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = []

    def counting(expr: sympy.Basic, env: ix.Env) -> np.ndarray[Any, Any]:
        visible = np.asarray(ix.evaluate(expr, env))
        pairs.append(visible.size)
        return visible

    monkeypatch.setattr(mask_count, "evaluate", counting)
    start = time.perf_counter()
    count = MaskSet.of(NAMED[name]).count({"P": 7}, 4096, 4096)
    assert time.perf_counter() - start < 5
    assert sum(pairs) < 4096 * 4096 / 20
    assert count == dense(NAMED[name], {"P": 7}, 4096, 4096).sum()


def test_slabs_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = MaskSet.of((k <= q) & (q - k < 100))
    whole = mask.count({}, 500, 500), mask.tile_shares({}, 500, 500, 16, 16)
    monkeypatch.setattr(mask_count, "CHUNK", 300)
    assert (mask.count({}, 500, 500), mask.tile_shares({}, 500, 500, 16, 16)) == whole


@pytest.mark.parametrize(
    ("formula", "causal", "reach"),
    [
        ("k <= q", True, None),
        ("(k <= q) & (k - q > -8)", True, 8),
        ("(k <= q) & (k // 8 == q // 8)", True, 8),
        ("(k <= q) & ((k < 4) | (k - q > -3))", True, None),
        ("k == q", True, 1),
        ("k <= q + 1", False, None),
        ("k // 8 == q // 8", False, 8),
        ("(k <= q) | (k < 4)", False, None),
    ],
)
def test_whether_a_mask_is_causal_and_how_far_back_it_reaches(formula: str, causal: bool, reach: int | None) -> None:
    mask = MaskSet.of(ix.parse(formula, {"q", "k"}, ("S",)), {"q": size("S"), "k": size("S")})
    assert mask.is_causal() == causal
    assert mask.reach() == reach
    pairs = [(q, k) for q in range(40) for k in range(40) if ix.evaluate(mask.expr, ix.Env(axes={"q": q, "k": k}))]
    assert all(k <= q for q, k in pairs) == causal
    assert reach is None or max(q - k for q, k in pairs) + 1 == reach
