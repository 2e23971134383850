"""Emitted kernels in Triton's interpreter against float64: the whole product, under every Triton."""

from __future__ import annotations

import itertools

import pytest

from tests.triton.kernel_matrix import AXES, everything, pairwise
from tests.triton.run_case import check
from tests.triton.versions import VERSIONS

SHARDS = 12


def test_pairs_hold_every_pair() -> None:
    cases = [(c.variant, c.head_dim, c.rows, c.dtype) for c in pairwise()]
    for (i, first), (j, second) in itertools.combinations(enumerate(AXES), 2):
        assert {(c[i], c[j]) for c in cases} == set(itertools.product(first, second))


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shard", range(SHARDS), ids=lambda shard: f"shard-{shard:02}")
def test_everything(version: str, shard: int) -> None:
    cases = everything()[shard::SHARDS]
    assert cases
    for case in cases:
        check(case, version)
