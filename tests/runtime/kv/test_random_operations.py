"""10 000 random operations against a naive model; a short run of them in the fast tier."""

from __future__ import annotations

import numpy as np
import pytest
from kv_model import NumpyCache, Trial, group

GROUPS = {
    "full": ([group("full", 4)], [60]),
    "window": ([group("window", 3, 8)], [50]),
    "groups": ([group("full", 4), group("window", 4, 9), group("tiny", 2, 1)], [60, 40, 40]),
    "wide": ([group("full", 16), group("window", 8, 24)], [20, 24]),
}


def check(name: str, operations: int, seed: int, every: int) -> None:
    trial = Trial(NumpyCache(*GROUPS[name]), seed, every=every)
    trial.run(operations)
    stats = [pool.stats() for pool in trial.sequences.pools]
    trial.finish()
    rare = ("hits", "fork", "free", "preempt", "refused")
    assert min(trial.done[kind] for kind in rare) > operations / 200, trial.done
    assert all(pool.evictions for pool in stats)


@pytest.mark.parametrize("name", GROUPS)
def test_every_slot_holds_its_token(name: str) -> None:
    check(name, 400, seed=3, every=20)


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPS)
def test_every_slot_holds_its_token_in_10_000_operations(name: str) -> None:
    check(name, 10_000, seed=4, every=1)


@pytest.mark.parametrize("page_size", [16, 32, 64, 128])
def test_waste_of_1000_sequences(page_size: int) -> None:
    drawn = np.random.default_rng(0).lognormal(np.log(300), 0.8, 1000)
    lengths = np.clip(np.round(drawn), 16, 4096).astype(int)
    groups = [group("full", page_size)]
    cache = NumpyCache(groups, [int(sum(-(-lengths // page_size))) + 1])
    for seq, length in enumerate(lengths.tolist()):
        cache.sequences.admit(seq, [seq] * length)
        cache.sequences.reserve(seq, length)
        cache.sequences.commit(seq, [seq] * length)
    slots = cache.sequences.pools[0].stats().in_use * page_size
    waste = cache.sequences.empty_slots() / slots
    print(f"page {page_size}: {waste:.2%} of {slots} slots hold no token")
    assert waste == pytest.approx(1 - lengths.sum() / slots)
    assert waste <= (0.04 if page_size == 16 else 0.25)
