"""Emitted kernels in Triton's interpreter against float64: the whole product, under every Triton."""

from __future__ import annotations

import itertools

import pytest

from tests.triton.kernel_matrix import AXES, everything, pairwise
from tests.triton.run_case import check
from tests.triton.versions import OTHERS, PINNED

SHARDS = 18


def test_pairs_hold_every_pair() -> None:
    cases = [(c.variant, c.head_dim, c.rows, c.dtype) for c in pairwise()]
    assert len(set(itertools.chain(*everything()))) == 13 * 6 * 3 * 3
    for (i, first), (j, second) in itertools.combinations(enumerate(AXES), 2):
        assert {(c[i], c[j]) for c in cases} == set(itertools.product(first, second))


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS), ids=lambda shard: f"shard-{shard:02}")
def test_everything(shard: int) -> None:
    alike = everything()[shard::SHARDS]
    assert len(alike) == 13
    for case in itertools.chain(*alike):
        check(case, (PINNED, *OTHERS))
