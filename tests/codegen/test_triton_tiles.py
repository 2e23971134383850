"""Tiles and parts of head dimensions of Triton kernels."""

from __future__ import annotations

import itertools

import pytest

from attnc.codegen.targets import CAPABILITIES, capability
from attnc.codegen.triton.dims import parts
from attnc.codegen.triton.tuning import BYTES, Demand, candidates, tuning

GPUS = [name for name, c in CAPABILITIES.items() if c.gpu is not None]
DEMANDS = [
    Demand(d, d, dtype, pairs)
    for d, dtype, pairs in itertools.product((16, 40, 64, 80, 96, 128, 192, 256), ("f32", "f16", "bf16"), (False, True))
]


def power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def test_parts_cover_every_head_dimension() -> None:
    for length in range(1, 600):
        high, low = parts(length)
        assert power_of_two(high) and high >= 16 and (low == 0 or (power_of_two(low) and low >= 16)), length
        whole = max(16, 1 << (length - 1).bit_length())
        assert length <= high + low <= whole and (low == 0 or high + low < whole), length


@pytest.mark.parametrize(("length", "expected"), [(80, (64, 16)), (96, (64, 32)), (40, (32, 16)), (0, (16, 0))])
def test_parts_of_known_dimensions(length: int, expected: tuple[int, int]) -> None:
    assert parts(length) == expected


def test_a_negative_head_dimension_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        parts(-1)


@pytest.mark.parametrize("name", GPUS)
def test_candidates_fit_shared_memory(name: str) -> None:
    target = capability(name)
    assert target.gpu is not None
    for demand in DEMANDS:
        found = candidates(target, demand)
        assert found and len({(t.block_m, t.block_n) for t in found}) == len(found), demand
        width = sum(parts(demand.head_dim)) + sum(parts(demand.value_dim))
        for t in found:
            queries, keys = t.block_m * sum(parts(demand.head_dim)), t.num_stages * t.block_n * width
            assert (queries + keys) * BYTES[demand.dtype] <= target.gpu.shared, demand
            assert all(map(power_of_two, (t.block_m, t.block_n, t.num_warps))) and t.num_stages >= 1, demand
            assert tuning(target, t.block_m, t.block_n, demand) == t


def test_values_for_every_pair_make_tiles_smaller() -> None:
    for name in GPUS:
        plain, pairs = (candidates(capability(name), Demand(128, 128, "bf16", p))[0] for p in (False, True))
        assert pairs.block_m * pairs.block_n < plain.block_m * plain.block_n
