"""Index expressions as text: what they look like, and that the text reads back equal."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from attnc.ir import index as ix
from attnc.ir.types import size

q, k, b = ix.axis("q"), ix.axis("k"), ix.axis("b")
S, P = size("S"), size("P")
AXES, SIZES = ("b", "q", "k"), ("S", "P")

integers = st.recursive(
    st.sampled_from([q, k, b, S, P]) | st.integers(-5, 5).map(sympy.Integer),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda xy: xy[0] + xy[1]),
        st.tuples(inner, inner).map(lambda xy: xy[0] - xy[1]),
        st.tuples(inner, st.integers(-3, 3)).map(lambda xy: xy[0] * xy[1]),
        st.tuples(inner, st.integers(2, 5)).map(lambda xy: sympy.floor(xy[0] / xy[1])),
        st.tuples(inner, st.integers(2, 5)).map(lambda xy: sympy.Mod(xy[0], xy[1])),
        st.tuples(inner, inner).map(lambda xy: ix.load("t0", *xy)),
        st.tuples(inner, inner).map(lambda xy: ix.where(q < k, *xy)),
        st.tuples(inner, inner).map(lambda xy: sympy.Max(*xy)),
    ),
    max_leaves=6,
)
relations = st.tuples(st.sampled_from([sympy.Le, sympy.Lt, sympy.Ge, sympy.Gt, sympy.Eq, sympy.Ne]), integers, integers)
conditions = st.recursive(
    relations.map(lambda r: r[0](r[1], r[2])),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda xy: sympy.And(*xy)),
        st.tuples(inner, inner).map(lambda xy: sympy.Or(*xy)),
        inner.map(sympy.Not),
    ),
    max_leaves=4,
)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        ((k <= q) & (k - q > -16) & sympy.Ne(ix.load("t0", b, k), 0), "(k <= q) & (k - q > -16) & (t0[b, k] != 0)"),
        (sympy.floor((k + P) / 4) - 2 * k + 1, "(P + k) // 4 + 1 - 2*k"),
        (sympy.Eq(sympy.floor(k / 512), sympy.floor(q / 512)), "k // 512 == q // 512"),
        (sympy.Mod(q - k, 4), "(q - k) % 4"),
        (((k < 4) & (q < 4)) | (k > q), "(k > q) | (k < 4) & (q < 4)"),
        (
            ix.where(k < q, q - k, ix.where(k < 3, 1, sympy.Max(k, q))),
            "where(k < q, q - k, where(k < 3, 1, max(k, q)))",
        ),
        (sympy.true, "True"),
        (k * k * S - 3, "S*k*k - 3"),
    ],
)
def test_formulas_look_as_people_write_them(expr: sympy.Basic, text: str) -> None:
    shown = ix.show(expr)
    assert shown == text
    assert ix.parse(text, AXES, SIZES) == expr


@settings(max_examples=40, deadline=None)
@given(conditions | integers)
def test_text_reads_back_equal_once_simplified(expr: sympy.Basic) -> None:
    expr = ix.parse(ix.show(expr), AXES, SIZES)
    assert ix.parse(ix.show(expr), AXES, SIZES) == expr


def test_axis_and_size_are_told_apart_by_where_the_name_is_declared() -> None:
    assert ix.parse("n", ["n"], []) == ix.axis("n")
    assert ix.parse("n", [], ["n"]) == size("n")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("k <=", "column"),
        ("k <= z", "'z' at column 5"),
        ("k / 2", "'k / 2'"),
        ("1 < k < q", "1 < k < q"),
        ("k & 3", "3"),
    ],
)
def test_errors_name_the_place(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match="reading index expression") as caught:
        ix.parse(text, AXES, SIZES)
    assert complaint in str(caught.value)


def test_real_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="not an index expression"):
        ix.show(k + sympy.Float(0.5))
