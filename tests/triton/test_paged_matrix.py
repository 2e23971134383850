"""Kernels of paged attention in Triton's interpreter: every page size, store and kind, by the numerics policy."""

from __future__ import annotations

import itertools

import pytest

from tests.runtime.paged_samples import KINDS, Case
from tests.triton.paged_runs import check

PAGES = (16, 32, 64, 128)
STORES = ("f32", "bf16", "f16", "i8", "f8e4m3", "i4")
VARIANTS: dict[str, dict[str, object]] = {
    **{kind: {"kind": kind} for kind in KINDS},
    "gqa": {"group": 4},
    "mqa": {"heads": 1, "group": 9},
    "cross": {"cross": True, "group": 2},
    "window gqa": {"kind": "window", "group": 7},
    **{f"d{d}": {"head_dim": d, "value_dim": d, "group": 2} for d in (64, 80, 96, 128, 256)},
    "d63, e127": {"head_dim": 63, "value_dim": 127},
}
SHARDS = 16


def everything() -> list[Case]:
    """The product; pages of floats are those of a model in that dtype, quantised ones take their turn with each."""
    found = []
    for i, (page, store, name) in enumerate(itertools.product(PAGES, STORES, VARIANTS)):
        dtype = store if store in ("f32", "bf16", "f16") else ("f32", "bf16", "f16")[i % 3]
        found.append(Case(dtype=dtype, k_store=store, v_store=store, page_size=page, **VARIANTS[name]))  # type: ignore[arg-type]
    return found


def test_everything_is_there() -> None:
    cases = everything()
    assert len(set(cases)) == len(cases) == len(PAGES) * len(STORES) * len(VARIANTS)
    quantised = {(c.dtype, c.k_store) for c in cases if c.k_store not in ("f32", "bf16", "f16")}
    assert len(quantised) == 9


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS), ids=lambda shard: f"shard-{shard:02}")
def test_product(shard: int) -> None:
    for case in everything()[shard::SHARDS]:
        check(case, (1, 60, 530))
