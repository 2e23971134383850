"""A naive cache, which keeps each sequence's tokens in a list, and the random operations it is compared under."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from attnc.runtime.kv.pool import OutOfPages, PagePool
from attnc.runtime.kv.sequences import Sequences
from attnc.runtime.kv.specs import GroupSpec

NOTHING = -1
"""What a slot holds that no token was written to since its page was dropped."""


def marks(tokens: Sequence[int], modulo: int, start: int = 0) -> list[int]:
    """What is written for each token: it depends on all tokens before, as keys and values do."""
    found = []
    for token in tokens:
        start = (31 * start + token + 1) % modulo
        found.append(start)
    return found


def group(name: str, page_size: int, window: int | None = None) -> GroupSpec:
    return GroupSpec(name, page_size, window, {})


class Subject(Protocol):
    """A cache with data in it."""

    sequences: Sequences
    modulo: int
    """Marks are 0 … modulo − 1."""

    def extend(self, seq: int, tokens: list[int], data: list[int], spare: int) -> None:
        """Reserve, ``spare`` tokens more than needed, write the data of each token, commit. Raises OutOfPages."""

    def read(self, seq: int, g: int) -> list[int]:
        """What each position of a sequence reads in a group; anything where its page was given back."""


class NumpyCache:
    """Sequences over arrays of marks: data[group][page, slot]."""

    modulo = 1_000_003

    def __init__(self, groups: Sequence[GroupSpec], num_pages: Sequence[int]) -> None:
        self.data = [np.full((n, g.page_size), NOTHING) for n, g in zip(num_pages, groups, strict=True)]
        pools = [
            PagePool(n, g.page_size, self._discard(i)) for i, (n, g) in enumerate(zip(num_pages, groups, strict=True))
        ]
        self.sequences = Sequences(groups, pools)

    def _discard(self, g: int) -> Callable[[Sequence[int]], None]:
        def discard(pages: Sequence[int]) -> None:
            self.data[g][list(pages)] = NOTHING

        return discard

    def extend(self, seq: int, tokens: list[int], data: list[int], spare: int) -> None:
        names = [group.name for group in self.sequences.groups]
        for page in self.sequences.reserve(seq, len(tokens) + spare):
            pages = self.data[names.index(page.group)]
            pages[page.target] = pages[page.source]
        state = self.sequences[seq]
        for group, table, pages in zip(self.sequences.groups, state.tables, self.data, strict=True):
            for position, mark in enumerate(data, state.length):
                pages[table.ids[position // group.page_size], position % group.page_size] = mark
        self.sequences.commit(seq, tokens)

    def read(self, seq: int, g: int) -> list[int]:
        state = self.sequences[seq]
        return self.data[g][state.tables[g].ids].ravel()[: state.length].tolist()


class Trial:
    """Random operations on a cache and on lists of tokens, compared after each."""

    def __init__(self, subject: Subject, seed: int, *, every: int = 1) -> None:
        self.subject = subject
        self.sequences = subject.sequences
        self.random = random.Random(seed)
        self.every = every
        """All sequences are read after so many operations; the one an operation was about, after each."""
        self.lists: dict[int, list[int]] = {}
        self.prompts: dict[int, list[int]] = {}
        """What of each prompt is still to be written."""
        self.done: Counter[str] = Counter()
        self.next_id = 0
        self.dropped: list[int] = []
        """Tokens of the sequence freed last."""
        self.stories = [[self.random.randrange(3) for _ in range(60)] for _ in range(4)]

    def run(self, operations: int) -> None:
        kinds = [self.admit, self.extend, self.fork, self.free, self.preempt]
        for i in range(operations):
            kind = self.random.choices(kinds, (4, 20, 1, 2, 1))[0] if self.lists else self.admit
            before = snapshot(self.sequences)
            try:
                seq = kind()
            except OutOfPages as error:
                assert error.wanted > error.available and not error.never_fits
                assert snapshot(self.sequences) == before, f"{kind.__name__} left a trace"
                self.done["refused"] += 1
                seq = self.free()
            else:
                self.done[kind.__name__] += 1
            check_pools(self.sequences)
            for each in self.lists if i % self.every == 0 else {seq} & self.lists.keys():
                self.check(each)

    def admit(self) -> int:
        story = self.random.choice(self.stories)
        tokens = story[: self.random.randint(1, len(story))] + [self.random.randrange(3)] * self.random.randint(0, 1)
        return self.begin(tokens)

    def begin(self, tokens: list[int]) -> int:
        seq = self.next_id
        hit = self.sequences.admit(seq, tokens)
        assert 0 <= hit < len(tokens)
        assert all(hit % group.page_size == 0 for group in self.sequences.groups)
        self.lists[seq], self.prompts[seq] = tokens[:hit], tokens[hit:]
        self.done["hits"] += hit > 0
        self.next_id += 1
        return seq

    def extend(self) -> int:
        """The next piece of the prompt, or tokens of its own; sometimes more is reserved than written."""
        seq = self.pick()
        number = self.random.choice([1, 1, 1, 2, 7, 30 if self.prompts[seq] else 1])
        tokens = self.prompts[seq][:number] or [self.random.randrange(3) for _ in range(number)]
        data = self.marks(self.lists[seq] + tokens)[-len(tokens) :]
        self.subject.extend(seq, tokens, data, spare=self.random.choice([0, 0, 0, 3]))
        self.lists[seq] += tokens
        del self.prompts[seq][: len(tokens)]
        return seq

    def preempt(self) -> int:
        """Free a sequence and admit all its tokens again; it may be refused then, which no trace may show."""
        self.free()
        tokens = self.dropped
        try:
            return self.begin(tokens or [0])
        except OutOfPages:
            self.done["refused"] += 1
            return self.next_id

    def fork(self) -> int:
        seq, new = self.pick(), self.next_id
        self.sequences.fork(seq, new)
        self.lists[new], self.prompts[new] = list(self.lists[seq]), list(self.prompts[seq])
        self.next_id += 1
        return new

    def free(self) -> int:
        seq = self.pick()
        self.sequences.free(seq)
        self.dropped = self.lists.pop(seq)
        return seq

    def pick(self) -> int:
        return self.random.choice(list(self.lists))

    def check(self, seq: int) -> None:
        expected = self.marks(self.lists[seq])
        for g, group in enumerate(self.sequences.groups):
            behind = group.first_page(len(expected)) * group.page_size
            assert self.subject.read(seq, g)[behind:] == expected[behind:], f"sequence {seq}, group {group.name}"
            assert not self.sequences[seq].tables[g].ids[: group.first_page(len(expected))].any()

    def marks(self, tokens: list[int]) -> list[int]:
        return marks(tokens, self.subject.modulo)

    def finish(self) -> None:
        """Free all: every page is free or cached then."""
        for seq in list(self.lists):
            self.sequences.free(seq)
        for pool in self.sequences.pools:
            stats = pool.stats()
            assert (stats.in_use, stats.free + stats.cached) == (0, pool.total)


def check_pools(sequences: Sequences) -> None:
    """Counts are those of the tables; every page is in one state only; the index knows no free page."""
    for g, pool in enumerate(sequences.pools):
        held = Counter(page for state in sequences.states.values() for page in state.tables[g].live)
        assert 0 not in held
        assert {p: pool.count(p) for p in range(pool.total + 1) if pool.count(p)} == held
        free, cached = set(pool._free), set(pool._cached)
        assert len(free) == len(pool._free)
        assert sorted([*free, *cached, *held]) == list(range(1, pool.total + 1))
        assert pool._index == {key: page for page, key in pool._keys.items()}
        assert cached <= set(pool._keys) and not free & set(pool._keys)


def snapshot(sequences: Sequences) -> Any:
    """All of a cache's state, to compare."""
    pools = [(pool._counts[:], pool._free[:], [*pool._cached], dict(pool._index)) for pool in sequences.pools]
    states = {
        seq: (
            state.length,
            state.room,
            [table.ids.tolist() for table in state.tables],
            [(size, chain.key, [*chain._tail]) for size, chain in state.chains.items()],
        )
        for seq, state in sequences.states.items()
    }
    return pools, [pool.stats() for pool in sequences.pools], states, sequences.prompt_tokens, sequences.hit_tokens
