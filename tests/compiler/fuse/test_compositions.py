"""Random compositions of masks, biases, scales, head forms, layouts, softmaxes and dtypes: right, and fused."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from benchmarks.cases import compositions as cases
from benchmarks.cases.compositions import Composition
from benchmarks.cases.runs import run_function

PARTS = range(6)


@st.composite
def compositions(draw: st.DrawFn) -> Composition:
    head_form = draw(st.sampled_from(cases.HEADS))
    queries = draw(st.integers(2, 40))
    return Composition(
        mask=draw(st.sampled_from(cases.MASKS)),
        bias=draw(st.sampled_from(cases.BIASES)),
        scale=draw(st.sampled_from(cases.SCALES)),
        head_form=head_form,
        layout=draw(st.sampled_from(cases.LAYOUTS)),
        softmax=draw(st.sampled_from(cases.SOFTMAXES)),
        dtype=draw(st.sampled_from(cases.DTYPES)),
        batch=draw(st.integers(1, 3)),
        heads=draw(st.sampled_from((2, 4, 6))),
        queries=queries,
        keys=draw(st.integers(2, 70)) if head_form == "cross" else queries,
        features=draw(st.sampled_from((8, 16, 40))),
    )


def check(composition: Composition) -> None:
    outcome = run_function(composition.program(), composition.inputs())
    assert outcome.right, f"{composition}: {outcome}"
    assert outcome.fused == 1, f"{composition}: {outcome}"


def drawn(part: int) -> list[Composition]:
    """50 of 300, the same ones in every run."""
    found: list[Composition] = []

    @seed(part)
    @settings(max_examples=50, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(compositions())
    def collect(composition: Composition) -> None:
        found.append(composition)

    collect()
    return found


@settings(max_examples=6, derandomize=True, database=None)
@given(compositions())
def test_a_few(composition: Composition) -> None:
    check(composition)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"part-{part}")
def test_many(part: int) -> None:
    for composition in drawn(part):
        check(composition)


@pytest.mark.slow
def test_every_choice_is_drawn_often() -> None:
    """:func:`test_many` asserts that each drawn composition is fused."""
    values = {
        "mask": cases.MASKS,
        "bias": cases.BIASES,
        "scale": cases.SCALES,
        "head_form": cases.HEADS,
        "layout": cases.LAYOUTS,
        "softmax": cases.SOFTMAXES,
        "dtype": cases.DTYPES,
    }
    compositions = [composition for part in PARTS for composition in drawn(part)]
    assert len(compositions) >= 300
    often = Counter(choice for composition in compositions for choice in composition.choices)
    assert not {(axis, value) for axis, found in values.items() for value in found if often[axis, value] < 10}
