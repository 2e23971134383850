"""Which dimension each size is read from, and dimensions as postfix programs."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from attnc.compiler.host.size_programs import InputSizes, postfix
from attnc.ir.graph import SizeInfo
from attnc.ir.types import size
from attnc.runtime.host_program import NamedSize
from attnc.runtime.host_steps import evaluate

B, S = size("B"), size("S")
FORMS: dict[str, Any] = {
    "half, rounded up": sympy.floor(S / 2 + sympy.Rational(1, 2)),
    "remainder of a negative": sympy.Mod(S - 70, 5),
    "largest": B * sympy.Max(0, 10 - S),
    "exact quotient": S * (S + 1) / 2,
    "quotient, rounded up": sympy.ceiling(S / 3),
    "power": sympy.Min(S, B) ** 2 - 3,
    "quotient in a sum": 3 * sympy.floor((S + B) / 4) + 1,
    "quotient of a quotient": sympy.floor((sympy.floor(S / 2) - 9) / 4),
    "distance": sympy.Abs(3 - S),
    "difference": 2 * B - S,
}


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=20)
@given(st.integers(1, 60), st.integers(1, 9))
def test_a_program_gives_what_the_expression_is(name: str, s: int, b: int) -> None:
    program = postfix(FORMS[name])
    assert evaluate(program, {"S": s, "B": b}) == int(FORMS[name].subs({S: s, B: b}))
    assert all(isinstance(token, str) or type(token) is int for token in program)


def test_a_function_without_a_form_is_refused() -> None:
    with pytest.raises(ValueError, match="cos"):
        postfix(sympy.cos(S) + 1)


def test_sizes_are_read_where_they_stand_alone() -> None:
    sizes = InputSizes(
        [("x", (B, 2 * S + 1, 8)), ("y", (S, B * S, S - B))], {"B": SizeInfo(2, 9), "S": SizeInfo(2, None)}
    )
    assert sizes.named == [NamedSize("B", 0, 0, 2, 9), NamedSize("S", 1, 0, 2, None)]
    for place, wanted in {(0, 0): 4, (0, 1): 23, (0, 2): 8, (1, 0): 11, (1, 1): 44, (1, 2): 7}.items():
        assert evaluate(sizes.program(place), {"B": 4, "S": 11}) == wanted


def test_a_size_is_solved_for() -> None:
    sizes = InputSizes([("x y", (2 * S + 1,)), ("z", (3 * S - 2,))], {"S": SizeInfo(2, 50)})
    assert sizes.named == [NamedSize("size_x_y_0", 0, 0, 5, 101)]
    assert evaluate(sizes.program((1, 0)), {"size_x_y_0": 15}) == 19


def test_what_cannot_be_solved_is_a_size_of_its_own() -> None:
    sizes = InputSizes([("x", (B * S,)), ("n", (None,)), ("size_x", ()), ("size", (S**2,))], {"size_n_0": SizeInfo()})
    assert sizes.named == [
        NamedSize("size_x_0", 0, 0, 0, None),
        NamedSize("size_n_0_", 1, 0, None, None),
        NamedSize("size_size_0", 3, 0, 0, None),
    ]
    assert [sizes.program(place) for place in ((0, 0), (1, 0), (3, 0))] == [
        ("size_x_0",),
        ("size_n_0_",),
        ("size_size_0",),
    ]
