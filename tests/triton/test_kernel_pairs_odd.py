"""Emitted kernels in Triton's interpreter against float64: the other half of a pairwise covering set.

The set is in two files, because a file is what a worker of the test run takes.
"""

from __future__ import annotations

import pytest

from tests.triton.kernel_matrix import Case, pairwise
from tests.triton.run_case import check
from tests.triton.versions import PINNED


@pytest.mark.parametrize("case", pairwise()[1::2], ids=str)
def test_pairs(case: Case) -> None:
    check(case, (PINNED,))
