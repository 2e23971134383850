"""What a mask read off a score claims: hidden exactly where the source put a fill."""

from __future__ import annotations

import math

import pytest
import sympy

from attnc.compiler.fuse.masking import fill_class, guarded, split
from attnc.ir import index as ix
from attnc.ir import score as sc
from attnc.ir.attention import Fill
from attnc.ir.types import DType

F32 = DType.F32
Q, K = ix.axis("q"), ix.axis("k")
CAUSAL = sympy.Le(K, Q)
QK = sc.qk(F32)


def number(value: float) -> sc.Node:
    return sc.const(value, F32)


def masked(value: float, score: sc.Node = QK) -> sc.Node:
    return sc.where(sc.index(CAUSAL, DType.B1), score, number(value))


def times(node: sc.Node, factor: float) -> sc.Node:
    return sc.binary("mul", node, number(factor), F32)


MASKS = [
    (masked(-math.inf), {-math.inf}),
    (sc.binary("add", QK, masked(-1e9, number(0.0)), F32), {-1e9}),
    (times(masked(-1e9), 0.5), {-5e8}),
    (sc.binary("max", masked(-math.inf), number(-1e9), F32), {-1e9}),
    (sc.binary("max", number(-1e9), masked(-math.inf), F32), {-1e9}),
    (sc.binary("max", masked(-1e9), number(-math.inf), F32), {-1e9}),
]


@pytest.mark.parametrize(("score", "fills"), MASKS)
def test_a_fill_hides_what_it_is_put_on(score: sc.Node, fills: set[float]) -> None:
    found = split(score)
    assert found.mask == CAUSAL
    assert found.fills == fills


NO_MASKS = [
    masked(-9999.0),
    times(masked(-1e9), -1.0),
    times(masked(-1e9), 1e-8),
    sc.unary("neg", masked(-1e9)),
    sc.unary("tanh", masked(-math.inf)),
    sc.binary("min", masked(-math.inf), number(0.0), F32),
    sc.binary("max", masked(-math.inf), number(-3.0), F32),
    sc.binary("sub", QK, masked(-1e9, number(0.0)), F32),
]


@pytest.mark.parametrize("score", NO_MASKS)
def test_what_no_longer_hides_is_no_mask(score: sc.Node) -> None:
    found = split(score)
    assert found.mask is sympy.true
    assert found.visible is score


def test_a_lower_bound_stays_where_keys_are_visible() -> None:
    """A loaded −inf becomes the bound."""
    biased = masked(-math.inf, sc.binary("add", QK, sc.load("t0", (K,), F32), F32))
    visible = split(sc.binary("max", biased, number(-1e9), F32)).visible
    assert visible is not None and visible.op == "max"


@pytest.mark.parametrize("factor", [-10000.0, -1e9, -4000.0])
def test_a_loaded_integer_times_a_large_number_is_a_mask(factor: float) -> None:
    loaded = ix.load("t0", K)
    term = times(sc.binary("sub", number(1.0), sc.index(loaded, F32), F32), factor)
    found = split(sc.binary("add", QK, term, F32))
    for value in range(-5, 5):
        hidden = (1 - value) * factor <= -1e4
        assert bool(found.mask.xreplace({loaded: sympy.Integer(value)})) is not hidden
    assert fill_class(found.fills) == Fill(-1e4)


def test_loaded_data_as_low_as_a_finite_fill_is_told_apart() -> None:
    biased = sc.binary("add", QK, sc.load("t0", (K,), F32), F32)
    assert guarded(biased, Fill(-1e9)) is not None
    assert guarded(biased, Fill()) is None
    assert guarded(sc.binary("mul", QK, sc.load("t0", (), F32), F32), Fill(-1e9)) is None
