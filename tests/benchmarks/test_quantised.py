"""What is promised of quantised caches is judged: each bound can fail."""

from __future__ import annotations

import dataclasses

import pytest

from attnc.compiler.cache_report import CacheReport, CacheRow
from benchmarks.quantised import judged

GOOD = (
    CacheRow("f32 (own)", 20.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1000, 0.5),
    CacheRow("int8", 20.02, 0.001, 0.0003, 1.0, 0.01, 0.001, 0.99, 260, 1.97),
    CacheRow("int8/int4", 20.2, 0.01, 0.002, 2.0, 0.05, 0.01, 0.97, 202, 2.53),
    CacheRow("int4", 22.0, 0.1, 0.01, 9.0, 0.5, 0.1, 0.8, 144, 3.56),
)


def report(tokens: int = 2048, **changed: dict[str, float]) -> CacheReport:
    """GOOD with some figures of some rows changed; rows by name, ``_`` for ``/``."""
    rows = [dataclasses.replace(row, **changed.get(row.kv.replace("/", "_"), {})) for row in GOOD]
    return CacheReport("gemma", tokens, tuple(rows))


def test_figures_of_what_is_as_promised() -> None:
    figures = judged(report())
    assert figures["tokens"] == 2048
    assert [row["kv"] for row in figures["rows"]] == [row.kv for row in GOOD]  # type: ignore[attr-defined]
    assert [text.split()[:2] for text in figures["warned"]] == [["ATTNC-KV-PERPLEXITY", "int4"]]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "changed",
    [
        {"int8": {"change": 0.006}},
        {"int8": {"change": -0.006}},
        {"int8": {"change": float("nan")}},
        {"int8_int4": {"change": 0.031}},
        {"int8_int4": {"capacity": 2.49}},
        {"int4": {"capacity": 3.49}},
        {"int4": {"change": 0.02}},
    ],
    ids=str,
)
def test_what_is_not_as_promised_fails(changed: dict[str, dict[str, float]]) -> None:
    """The last: a change that small carries no code, so nothing was shown of the warning."""
    with pytest.raises(AssertionError):
        judged(report(**changed))


def test_too_short_a_text_fails() -> None:
    with pytest.raises(AssertionError):
        judged(report(tokens=1999))
