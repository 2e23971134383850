"""The facade: batches, poison, statistics, and random operations with real page tensors."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from kv_model import Trial

from attnc.runtime.kv.cache import KVCache
from attnc.runtime.kv.pool import OutOfPages
from attnc.runtime.kv.specs import GroupSpec, RaggedBatch, StreamSpec


def stream(store: str = "f32", heads: int = 1, features: int = 2) -> StreamSpec:
    return StreamSpec(heads, features, store, "f32")


def groups() -> list[GroupSpec]:
    return [
        GroupSpec("full", 4, None, {"a": (stream(), stream("i8")), "b": (stream("bf16"), stream("f8e4m3", 2, 5))}),
        GroupSpec("window", 6, 7, {"c": (stream("i4", 1, 33), stream("f16"))}),
    ]


def cache(full: int = 40, window: int = 30) -> KVCache:
    return KVCache(groups(), {"full": full, "window": window}, debug=True)


WORTH = [sign * 2.0**power for sign in (1, -1) for power in range(8)]
"""What stands for a token in the pages: a number that every store keeps exactly. Tokens are 0 … 15."""


def rows(tokens: list[int], spec: StreamSpec) -> torch.Tensor:
    value = torch.tensor([WORTH[token] for token in tokens])
    return value[:, None, None].expand(-1, spec.heads, spec.features)


def write(kv: KVCache, batch: RaggedBatch, tokens: list[int]) -> None:
    for group in kv.groups:
        for site, (keys, values) in group.sites.items():
            kv.storage[group.name].write(site, rows(tokens, keys), rows(tokens, values), batch.slots[group.name])


def extend(kv: KVCache, seq: object, tokens: list[int]) -> None:
    kv.reserve(seq, len(tokens))
    write(kv, kv.batch([(seq, len(tokens))]), tokens)
    kv.commit(seq, tokens)


def assert_reads(kv: KVCache, seq: object, tokens: list[int]) -> None:
    """Every site reads every token that isn't behind a window, and zeros (not poison) behind it."""
    assert kv.length(seq) == len(tokens)
    for group in kv.groups:
        behind = group.first_page(len(tokens)) * group.page_size
        for site, specs in group.sites.items():
            found = kv.storage[group.name].gather(site, kv.table(seq)[group.name].tolist(), len(tokens))
            for stream_rows, spec in zip(found, specs, strict=True):
                assert torch.equal(stream_rows[behind:], rows(tokens, spec)[behind:])
                assert not stream_rows[:behind].any()


class Driven:
    """A KVCache as the random operations drive it."""

    modulo = len(WORTH)

    def __init__(self, kv: KVCache) -> None:
        self.kv = kv
        self.sequences = kv._sequences

    def extend(self, seq: int, tokens: list[int], data: list[int], spare: int) -> None:
        self.kv.reserve(seq, len(tokens) + spare)
        write(self.kv, self.kv.batch([(seq, len(tokens))]), data)
        self.kv.commit(seq, tokens)

    def read(self, seq: int, g: int) -> list[int]:
        group, length = self.kv.groups[g], self.kv.length(seq)
        site = next(iter(group.sites))
        found = self.kv.storage[group.name].gather(site, self.kv.table(seq)[group.name].tolist(), length)[0]
        return [WORTH.index(value) if value in WORTH else -1 for value in found[:, 0, -1].tolist()]


class AllSites(Trial):
    """All sites are read, not only the first."""

    def check(self, seq: int) -> None:
        super().check(seq)
        assert_reads(self.subject.kv, seq, self.marks(self.lists[seq]))  # type: ignore[attr-defined]


def run(operations: int, seed: int, every: int) -> None:
    trial = AllSites(Driven(cache(60, 30)), seed, every=every)
    trial.run(operations)
    assert min(trial.done[kind] for kind in ("hits", "fork", "free", "preempt", "refused")) > operations / 200
    trial.finish()
    for group in trial.subject.kv.groups:  # type: ignore[attr-defined]
        assert_free_pages_are_poisoned(trial.subject.kv, group)  # type: ignore[attr-defined]


def assert_free_pages_are_poisoned(kv: KVCache, group: GroupSpec) -> None:
    pool = kv._pools[[g.name for g in kv.groups].index(group.name)]
    assert pool._free
    for site in group.sites:
        found = kv.storage[group.name].gather(site, pool._free, len(pool._free) * group.page_size)
        assert all(bool(stream_rows.isnan().all()) for stream_rows in found)


def test_random_operations_on_page_tensors() -> None:
    run(150, seed=5, every=30)


@pytest.mark.slow
def test_10_000_random_operations_on_page_tensors() -> None:
    run(10_000, seed=6, every=50)


def test_a_batch_says_where_every_token_stands() -> None:
    """Against the definition, token by token."""
    chooser, kv = random.Random(7), cache(400, 300)
    for seq in range(6):
        prompt = [chooser.randrange(16) for _ in range(chooser.randint(1, 30))]
        kv.admit(seq, prompt)
        extend(kv, seq, prompt[kv.length(seq) :])
    requests = [(seq, chooser.randint(1, 9)) for seq in (4, 0, 5, 2)]
    for seq, number in requests:
        kv.reserve(seq, number + chooser.choice([0, 20]))
    batch = kv.batch(requests)
    assert batch.context_len.tolist() == [kv.length(seq) for seq, _ in requests]
    assert batch.query_start.tolist() == [0, *np.cumsum([number for _, number in requests]).tolist()]
    assert (batch.context_len.dtype, batch.query_start.dtype) == (torch.int32, torch.int32)
    assert batch.positions.dtype is torch.int64
    positions = [kv.length(seq) + i for seq, number in requests for i in range(number)]
    assert batch.positions.tolist() == positions
    owners = [seq for seq, number in requests for _ in range(number)]
    for group in kv.groups:
        size = group.page_size
        tables = {seq: kv.table(seq)[group.name].tolist() for seq, _ in requests}
        width = max(-(-(kv.length(seq) + number) // size) for seq, number in requests)
        expected = [(tables[seq] + [0] * width)[:width] for seq, _ in requests]
        assert batch.block_table[group.name].tolist() == expected
        assert batch.block_table[group.name].dtype is torch.int32
        slots = [tables[seq][p // size] * size + p % size for seq, p in zip(owners, positions, strict=True)]
        assert batch.slots[group.name].tolist() == slots
        assert batch.slots[group.name].dtype is torch.int64
        assert len(set(slots)) == len(slots)


def test_an_empty_batch_has_no_tokens() -> None:
    batch = cache().batch([])
    assert (batch.query_start.tolist(), batch.positions.tolist()) == ([0], [])
    assert batch.slots["full"].shape == (0,) and batch.block_table["full"].shape == (0, 0)


def test_a_batch_needs_room_for_its_tokens() -> None:
    kv = cache()
    kv.admit("x", [1, 2, 3])
    kv.reserve("x", 2)
    for requests, error, words in [
        ([("x", 3)], ValueError, "'x': 3 tokens in a batch, room for 2"),
        ([("x", 0)], ValueError, "0 tokens in a batch"),
        ([("x", 1), ("x", 1)], ValueError, "name each once"),
        ([("y", 1)], KeyError, "no sequence 'y'"),
    ]:
        with pytest.raises(error, match=words):
            kv.batch(requests)


def test_several_requests_in_one_batch_write_their_own_pages() -> None:
    kv = cache()
    tokens = {"x": [1, 2, 3, 4, 5], "y": [9, 8], "z": [7] * 11}
    for seq, own in tokens.items():
        kv.admit(seq, own)
        kv.reserve(seq, len(own))
    batch = kv.batch([(seq, len(own)) for seq, own in tokens.items()])
    write(kv, batch, [token for own in tokens.values() for token in own])
    for seq, own in tokens.items():
        kv.commit(seq, own)
    for seq, own in tokens.items():
        assert_reads(kv, seq, own)


def test_forks_write_pages_of_their_own() -> None:
    kv = cache()
    kv.admit("x", [1, 2, 3, 4, 5])
    extend(kv, "x", [1, 2, 3, 4, 5])
    kv.fork("x", "y")
    kv.fork("x", "z")
    for seq, own in (("y", [6]), ("x", [7, 8]), ("z", [9] * 5)):
        extend(kv, seq, own)
    for seq, own in (("x", [7, 8]), ("y", [6]), ("z", [9] * 5)):
        assert_reads(kv, seq, [1, 2, 3, 4, 5, *own])


def test_freed_pages_are_poisoned_and_cached_ones_are_not() -> None:
    kv = cache()
    tokens = [*range(14)]
    kv.admit("x", tokens)
    extend(kv, "x", tokens)
    table = kv.table("x")["full"].tolist()
    kv.free("x")
    keys, _ = kv.storage["full"].gather("a", table, 16)
    assert torch.equal(keys[:12], rows(tokens[:12], stream())) and bool(keys[12:].isnan().all())
    for group in kv.groups:
        assert_free_pages_are_poisoned(kv, group)


def test_evicted_pages_are_poisoned_before_they_are_written() -> None:
    kv = cache(full=5, window=5)
    kv.admit("x", [1] * 16)
    extend(kv, "x", [1] * 16)
    kv.free("x")
    kv.admit("y", [2])
    kv.reserve("y", 1)
    keys, values = kv.storage["full"].gather("a", kv.table("y")["full"].tolist(), 4)
    assert bool(keys.isnan().all()) and bool(values.isnan().all())
    assert kv.stats().evictions == 1


def test_statistics() -> None:
    kv = cache()
    assert kv.stats().waste == 0.0
    kv.admit("x", [*range(10)])
    extend(kv, "x", [*range(10)])  # full: 3 pages of 4; window: 2 of 6
    stats = kv.stats()
    assert (stats.sequences, stats.tokens, stats.pages) == (1, 10, 5)
    assert stats.waste == (2 + 2) / (12 + 12)
    assert (stats.groups["full"].in_use, stats.groups["full"].free) == (3, 36)
    kv.fork("x", "y")
    assert (kv.stats().tokens, kv.stats().pages, kv.stats().waste) == (20, 5, 4 / 24)
    kv.free("y")
    kv.free("x")
    kv.preemptions += 1
    assert kv.admit("z", [*range(12), 1]) == 0, "12 is a multiple of both page sizes, but only 10 tokens were there"
    extend(kv, "z", [*range(12), 1])
    assert kv.admit("w", [*range(12), 2]) == 12
    stats = kv.stats()
    assert (stats.prompt_tokens, stats.prefix_hit_tokens, stats.preemptions) == (10 + 13 + 13, 12, 1)
    assert stats.groups["full"].hits == 3 and stats.groups["window"].hits == 1


def test_out_of_pages_names_the_group_and_leaves_pages_alone() -> None:
    kv = cache(full=3, window=30)
    kv.admit("x", [*range(7)])
    extend(kv, "x", [*range(7)])
    with pytest.raises(OutOfPages, match="reserving 2 tokens for sequence 'x' in layer group 'full'"):
        kv.reserve("x", 2)
    with pytest.raises(OutOfPages, match="admitting sequence 'y' in layer group 'full'"):
        kv.admit("y", [1])
    assert_reads(kv, "x", [*range(7)])
    extend(kv, "x", [7])


@pytest.mark.parametrize("pages", [{}, {"full": 4}, {"full": 4, "window": 4, "more": 4}])
def test_groups_and_pools_have_the_same_names(pages: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be the same names"):
        KVCache(groups(), pages)
