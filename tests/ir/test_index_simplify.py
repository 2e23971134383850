"""Simplification: what is decided, and that values never change."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from attnc.ir import index as ix
from attnc.ir.types import size

q, k, b, h = (ix.axis(name) for name in "qkbh")
S, H, P = size("S"), size("H"), size("P")
RANGES = {k: (0, S - 1), q: (0, S - 1), h: (0, H - 1)}


@pytest.mark.parametrize(
    ("expr", "simple"),
    [
        (k < S, sympy.true),
        (k >= S, sympy.false),
        (k + P >= 1, sympy.true),
        ((k <= q) & (k < S), k <= q),
        ((k <= q) & (k <= q + 5), k <= q),
        ((k <= q) | (k <= q + 5), k <= q + 5),
        (sympy.Eq(k, S), sympy.false),
        (sympy.Ne(k, S), sympy.true),
        (sympy.floor((b * H + h) / H), b),
        (sympy.Mod(b * H + h, H), h),
        (sympy.floor((4 * q + 3) / 4), q),
        (ix.where(k < S, q, h), q),
        (ix.where(k < 3, ix.where(k < S, q, h), q), q),
        (sympy.Min(k, S + 3), k),
        (sympy.Max(k, S + 3), S + 3),
        (sympy.Eq(sympy.Mod(k, 4), 7), sympy.false),
        (ix.where(k < 5, 1, 2) >= 1, sympy.true),
        (k < sympy.Max(S, P), sympy.true),
        (sympy.floor(k / 4) <= k, sympy.true),
        (ix.load("t", k) - ix.load("t", k) >= 0, sympy.true),
    ],
)
def test_decided(expr: sympy.Basic, simple: sympy.Basic) -> None:
    assert ix.simplify(expr, RANGES) == simple


@pytest.mark.parametrize("expr", [k < S - 1, k <= q, sympy.Eq(k, q), ix.load("t", k) >= 0, k + 1 < S + ix.load("t", b)])
def test_left_alone(expr: sympy.Basic) -> None:
    assert ix.simplify(expr, RANGES) == expr


def _leaf(name: str) -> st.SearchStrategy[sympy.Expr]:
    return {"q": st.just(q), "k": st.just(k), "S": st.just(S), "P": st.just(P)}.get(
        name, st.integers(-4, 4).map(sympy.Integer)
    )


integers = st.recursive(
    st.sampled_from("qkSPi").flatmap(_leaf),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda xy: xy[0] + xy[1]),
        st.tuples(inner, st.integers(-3, 3)).map(lambda xy: xy[0] * xy[1]),
        st.tuples(inner, st.integers(2, 4)).map(lambda xy: sympy.floor(xy[0] / xy[1])),
        st.tuples(inner, st.integers(2, 4)).map(lambda xy: sympy.Mod(xy[0], xy[1])),
        inner.map(lambda x: sympy.Mod(x, S)),
        st.tuples(inner, inner).map(lambda xy: sympy.Min(*xy)),
        st.tuples(inner, inner, inner).map(lambda xyz: ix.where(xyz[0] < 3, xyz[1], xyz[2])),
    ),
    max_leaves=6,
)
conditions = st.tuples(st.sampled_from([sympy.Le, sympy.Gt, sympy.Eq, sympy.Ne]), integers, integers).map(
    lambda r: r[0](r[1], r[2])
)


@settings(max_examples=30, deadline=None)
@given(st.lists(conditions, min_size=1, max_size=3), st.booleans(), st.integers(1, 6), st.integers(1, 6))
def test_values_never_change(parts: list[sympy.Basic], conjunction: bool, s: int, p: int) -> None:
    expr = (sympy.And if conjunction else sympy.Or)(*parts)
    env = ix.Env({"q": np.arange(s)[:, None], "k": np.arange(s)[None, :]}, {"S": s, "P": p})
    before, after = (np.broadcast_to(ix.evaluate(e, env), (s, s)) for e in (expr, ix.simplify(expr, RANGES)))
    assert (before == after).all()


def test_conditions_on_cases_stay_plain_logic() -> None:
    inner = ix.where(q < 3, k, b)
    expr = ix.where(inner < 3, q, k) <= 5
    nested = sympy.Piecewise((q, inner < 3), (k, True)) <= 5  # sympy makes the condition an if-then-else
    assert nested.has(sympy.ITE) and not expr.has(sympy.ITE)
    env = ix.Env({"q": np.arange(8)[:, None], "k": np.arange(8)[None, :], "b": 2})
    for form in (nested, ix.simplify(nested, {}), ix.parse(ix.show(nested), "qkb", "")):
        assert (ix.evaluate(form, env) == ix.evaluate(expr, env)).all()


def test_a_load_outside_its_tensor_is_clamped() -> None:
    env = ix.Env({"k": np.arange(4)}, {}, {"t": np.array([10, 20])})
    assert ix.evaluate(ix.load("t", k), env).tolist() == [10, 20, 20, 20]
    assert ix.evaluate(ix.where(k < 2, ix.load("t", k), -1), env).tolist() == [10, 20, -1, -1]


def test_a_load_with_the_wrong_number_of_indices_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"2 indices for a tensor of shape \(2,\)"):
        ix.evaluate(ix.load("t", k, q), ix.Env({"k": 0, "q": 0}, {}, {"t": np.zeros(2)}))
