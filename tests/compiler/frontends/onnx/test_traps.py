"""ONNX models that look like attention keep their meaning, while twins that differ in one node fuse."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cases.onnx_traps import PAIRS, Pair
from benchmarks.cases.onnx_traps.runs import LENGTHS, TOLERANCE, by_onnxruntime, differs, error, in_eager, judged

FAST = {"queries at or after zero"}
"""Pairs compiled in the fast tests too."""
SIDES = ("trap", "twin")
EACH = [
    pytest.param(pair, side, id=f"{side}-{pair.name.replace(' ', '-')}", marks=[] if fast else [pytest.mark.slow])
    for pair in PAIRS
    for side in SIDES
    for fast in [pair.name in FAST]
]


@pytest.mark.parametrize("part", range(4))
def test_sides_differ(part: int) -> None:
    """A pair whose sides are one function would catch nobody."""
    assert [pair.name for pair in PAIRS[part::4] if differs(pair) == pair.equal] == []


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("place", range(len(LENGTHS)))
def test_operators(side: str, place: int) -> None:
    """Each model's operators, called one by one, answer as onnxruntime does."""
    wrong = {}
    for pair in PAIRS:
        if not (pair.random and side == "trap"):
            model, inputs = pair.model(side), pair.inputs(LENGTHS[place], seed=11)
            wrong[pair.name] = error(in_eager(model, inputs), by_onnxruntime(model, inputs))
    assert {name: worst for name, worst in wrong.items() if worst > TOLERANCE} == {}


@pytest.mark.parametrize(("pair", "side"), EACH)
def test_compiled(pair: Pair, side: str) -> None:
    """Compiled with symbolic sizes and run at others than the example's: right, and the twin fused."""
    assert judged(pair, side) == ""


def test_error_sees_a_difference() -> None:
    """The measure itself: shapes, NaN and numbers."""
    a = np.array([[1.0, np.nan], [0.0, 2.0]])
    assert error([a], [a]) == 0 and error([a[:1]], [a]) == np.inf
    assert error([np.nan_to_num(a)], [a]) == 0 and error([a], [np.nan_to_num(a)]) == np.inf
    assert error([np.where(np.isnan(a), 0.5, a)], [a]) == np.inf
    assert error([a + 1e-3], [a]) == pytest.approx(5e-4)


def test_there_are_many() -> None:
    """Raise this figure with the list; never lower it."""
    assert len({pair.name for pair in PAIRS}) >= 79
