"""Which pages each sequence has, in each layer group. Decides and counts; knows no tensors.

A sequence has ``length`` committed tokens and ``room`` for more. Sequences share pages: a prefix that was cached, or
all of a sequence by a fork. A page is written by one of them only: a shared one is copied before (copy-on-write; Kwon
et al. 2023, arXiv 2309.06180, section 4.4). Only a last, partly filled page can be both shared and written to, so only
that one is ever copied.

Every method either does all it says or raises and changes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from attnc.runtime.kv.pool import OutOfPages, PagePool
from attnc.runtime.kv.prefix import PrefixChain, PrefixHit, Tokens, longest_hit
from attnc.runtime.kv.specs import GroupSpec
from attnc.runtime.kv.tables import BlockTable

SequenceId = Hashable


@dataclass(eq=False)
class SequenceState:
    """One live sequence."""

    length: int
    """Committed tokens."""
    tables: tuple[BlockTable, ...]
    """One for each group."""
    chains: dict[int, PrefixChain]
    """By page size: keys of the pages to come."""
    room: int = 0
    """Tokens that may be written behind the committed ones."""


@dataclass(frozen=True)
class PageCopy:
    """A page whose content has to be copied, in all sites of a group, before the next write."""

    group: str
    source: int
    target: int


@dataclass
class Sequences:
    """All live sequences over the pools of their layer groups."""

    groups: Sequence[GroupSpec]
    pools: Sequence[PagePool]
    """One for each group."""
    states: dict[SequenceId, SequenceState] = field(default_factory=dict)
    prompt_tokens: int = 0
    hit_tokens: int = 0

    def __getitem__(self, seq: SequenceId) -> SequenceState:
        if seq not in self.states:
            raise KeyError(f"the cache has no sequence {seq!r}: admit it, or it was freed already")
        return self.states[seq]

    def admit(self, seq: SequenceId, tokens: Tokens, salt: bytes = b"") -> int:
        """Begin a sequence with the cached prefix of its prompt; how many tokens that is, always < len(tokens).

        Holds the pages of that prefix and no others; ``reserve`` takes those of the rest, piece by piece. Raises
        OutOfPages where the rest would not fit now: where fewer pages are available than the sequence will hold,
        beside the prefix, once its prompt is committed. Raises ValueError for a sequence that exists or no tokens.
        """
        self._check_new(seq)
        if not len(tokens):
            raise ValueError(f"sequence {seq!r} is admitted without a token")
        hit = longest_hit(self.groups, self.pools, tokens, salt)
        for g, group in enumerate(self.groups):
            first, end = group.first_page(len(tokens)), group.pages(len(tokens))
            kept, pool = hit.pages[g][first:], self.pools[g]
            idle = sum(1 for page in kept if pool.count(page) == 0)
            wanted = end - max(first, len(hit.pages[g]))
            self._require(g, f"admitting sequence {seq!r}", wanted, pool.available - idle, end - first)
        self.states[seq] = self._begin(hit)
        self.prompt_tokens += len(tokens)
        self.hit_tokens += hit.tokens
        return hit.tokens

    def _require(self, g: int, what: str, wanted: int, available: int, held: int) -> None:
        """Raise OutOfPages where more pages are wanted than available; with them a sequence would hold ``held``."""
        if wanted > available:
            total = self.pools[g].total
            raise OutOfPages(
                f"{what} in layer group {self.groups[g].name!r}",
                wanted=wanted,
                available=available,
                total=total,
                never_fits=held > total,
            )

    def _begin(self, hit: PrefixHit) -> SequenceState:
        tables = []
        for group, pool, pages in zip(self.groups, self.pools, hit.pages, strict=True):
            table = BlockTable(pages, group.first_page(hit.tokens))
            pool.reuse(table.live)
            tables.append(table)
        return SequenceState(hit.tokens, tuple(tables), hit.chains)

    def reserve(self, seq: SequenceId, number: int) -> list[PageCopy]:
        """Room for ``number`` tokens behind the committed ones, in pages of its own; what has to be copied for that.

        Asking again for no more does nothing. Raises OutOfPages, or ValueError for a number below 1.
        """
        state = self[seq]
        if number < 1:
            raise ValueError(f"sequence {seq!r}: room for {number} tokens is reserved")
        shared = [self._shared_page(state, g) for g in range(len(self.groups))]
        missing = [self._missing(state, g, number) for g in range(len(self.groups))]
        for g, pool in enumerate(self.pools):
            what = f"reserving {number} tokens for sequence {seq!r}"
            wanted = missing[g] + (shared[g] is not None)
            self._require(g, what, wanted, pool.available, state.tables[g].held + missing[g])
        copies = [self._unshare(state, g, page) for g, page in enumerate(shared) if page is not None]
        for table, pool, number_of_pages in zip(state.tables, self.pools, missing, strict=True):
            table.extend(pool.allocate(number_of_pages))
        state.room = max(state.room, number)
        return copies

    def _unshare(self, state: SequenceState, g: int, source: int) -> PageCopy:
        """Put a page of its own in the place of a shared last one."""
        group, pool = self.groups[g], self.pools[g]
        (target,) = pool.allocate(1)
        state.tables[g].replace(state.length // group.page_size, target)
        pool.release([source])
        return PageCopy(group.name, source, target)

    def _shared_page(self, state: SequenceState, g: int) -> int | None:
        """The partly filled last page, where others hold it too."""
        index, filled = divmod(state.length, self.groups[g].page_size)
        if not filled:
            return None
        page = int(state.tables[g].ids[index])
        return page if self.pools[g].count(page) > 1 else None

    def _missing(self, state: SequenceState, g: int, number: int) -> int:
        return max(0, self.groups[g].pages(state.length + number) - len(state.tables[g]))

    def commit(self, seq: SequenceId, tokens: Tokens) -> None:
        """The next tokens have been written: pages that are full now can be found by their prefix, and pages behind
        a window are given back. Raises ValueError for more tokens than there is room for.
        """
        state = self[seq]
        if len(tokens) > state.room:
            raise ValueError(
                f"sequence {seq!r}: {len(tokens)} tokens are committed, room for {state.room} is reserved; "
                f"reserve first (a fork takes back what was reserved before it)"
            )
        before = state.length
        keys = {size: chain.extend(tokens) for size, chain in state.chains.items()}
        state.length += len(tokens)
        state.room -= len(tokens)
        for group, pool, table in zip(self.groups, self.pools, state.tables, strict=True):
            first = before // group.page_size
            for page, key in zip(table.ids[first:].tolist(), keys[group.page_size], strict=False):
                pool.publish(page, key)
            pool.release(table.give_back(group.first_page(state.length)))

    def fork(self, seq: SequenceId, new: SequenceId) -> None:
        """A new sequence with the same committed tokens, in the same pages.

        Neither has room then: whoever reserves first gets a copy of the last page, if that is partly filled. Raises
        ValueError where ``new`` exists.
        """
        state = self[seq]
        self._check_new(new)
        tables = [table.fork(group.pages(state.length)) for group, table in zip(self.groups, state.tables, strict=True)]
        for pool, table in zip(self.pools, tables, strict=True):
            pool.retain(table.live)
        state.room = 0
        chains = {size: chain.copy() for size, chain in state.chains.items()}
        self.states[new] = SequenceState(state.length, tuple(tables), chains)

    def free(self, seq: SequenceId) -> None:
        """End a sequence. Of its cached pages the last are evicted first: a prefix is of use without what follows."""
        state = self[seq]
        for pool, table in zip(self.pools, state.tables, strict=True):
            pool.release(table.live[::-1])
        del self.states[seq]

    def tables(self, seq: SequenceId) -> dict[str, NDArray[np.int32]]:
        """For each group, by name: the page ids of a sequence, 0 for those given back."""
        return {group.name: table.ids.copy() for group, table in zip(self.groups, self[seq].tables, strict=True)}

    def empty_slots(self) -> int:
        """Slots of pages in use that hold no token; those of a shared page count once."""
        return sum(sum(self._empty(g).values()) for g in range(len(self.groups)))

    def _empty(self, g: int) -> dict[int, int]:
        """Page → empty slots, of pages of a group that are not full."""
        size = self.groups[g].page_size
        empty = {}
        for state in self.states.values():
            first = state.length // size
            pages: Iterable[int] = state.tables[g].ids[first:].tolist()
            for index, page in enumerate(pages, first):
                empty[page] = size - max(0, state.length - index * size)
        return empty

    def _check_new(self, seq: SequenceId) -> None:
        if seq in self.states:
            raise ValueError(f"the cache has a sequence {seq!r} already")
