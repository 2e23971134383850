"""Dimensions as text."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from attnc.ir.diagnostics import ParseError, PrintError
from attnc.ir.dims import parse_dim, show_dim
from attnc.ir.lexer import Cursor
from attnc.ir.types import Dim, size

B, S, T = size("B"), size("S"), size("T")


def read(text: str) -> Dim:
    return parse_dim(Cursor(text))


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (7, "7"),
        (-3, "-3"),
        (S, "S"),
        (2 * B * S, "2*B*S"),
        (-S, "-S"),
        (S + 1, "S + 1"),
        (S - T - 1, "S - T - 1"),
        (2 * S * (B + 1), "2*S*(B + 1)"),
        (S**2, "S**2"),
        (S / 2, "S/2"),
        (3 * S / (4 * B), "3*S/4/B"),
        (1 / S, "1/S"),
        (sympy.floor(S / 2), "S // 2"),
        (sympy.floor((S + 1) / 2), "(S + 1) // 2"),
        (4 * sympy.floor(S / 4), "4*(S // 4)"),
        (sympy.floor(B * S / T), "(B*S) // T"),
        (sympy.floor(S / 2 + sympy.Rational(1, 3)), "(3*S + 2) // 6"),
        (sympy.Mod(S, 4), "S % 4"),
        (sympy.Mod(S, 4) + 1, "S % 4 + 1"),
        (sympy.Max(S, T), "max(S, T)"),
        (sympy.ceiling(S / 2), "ceiling(S/2)"),
        (2**S, "2**S"),
    ],
)
def test_text_and_back(dim: Dim, text: str) -> None:
    assert show_dim(dim) == text
    assert read(text) == dim


def test_an_unevaluated_product_prints_as_what_it_reads_back_to() -> None:
    dim = sympy.Mul(2, B + 1, evaluate=False)
    assert show_dim(dim) == "2*B + 2"


def test_a_remainder_needs_no_space() -> None:
    assert read("(2*S%4 +B%T)") == sympy.Mod(2 * S, 4) + sympy.Mod(B, T)


def test_equal_names_are_equal_sizes() -> None:
    assert read("S") is size("S")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("S +", "expected a dimension"),
        ("foo(S)", "unknown function 'foo'"),
        ("floor(S, 2)", "floor takes one argument, got 2"),
        ("S // 0", "division by zero"),
        ("(S", r"expected '\)'"),
        ("2**9999999999", "exponents are at most 64"),
        ("0**(-1)", "a power of zero"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        read(text)


def test_no_text_form() -> None:
    with pytest.raises(PrintError, match="sin"):
        show_dim(sympy.sin(S))


def _combine(inner: st.SearchStrategy[sympy.Expr]) -> st.SearchStrategy[sympy.Expr]:
    divisor = st.sampled_from([sympy.Integer(2), sympy.Integer(3), sympy.Integer(8), S, B + 1])
    return st.one_of(
        st.builds(sympy.Add, inner, inner),
        st.builds(sympy.Mul, inner, inner),
        st.builds(lambda x, y: x - y, inner, inner),
        st.builds(lambda x, y: sympy.floor(x / y), inner, divisor),
        st.builds(sympy.Mod, inner, divisor),
    )


PARTS = st.recursive(st.sampled_from([B, S, T]) | st.integers(-4, 9).map(sympy.Integer), _combine, max_leaves=6)
# min and max stand outermost: sympy recurses without end in some nests of them.
DIMS = PARTS | st.builds(sympy.Max, PARTS, PARTS) | st.builds(sympy.Min, PARTS, PARTS)


@settings(max_examples=40, deadline=None)
@given(DIMS)
def test_any_dimension_reads_back(dim: sympy.Expr) -> None:
    text = show_dim(dim)
    assert show_dim(read(text)) == text
    point = {B: 3, S: 10, T: 7}
    assert sympy.sympify(read(text)).subs(point) == dim.subs(point)
