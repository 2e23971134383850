"""The paged K/V cache as a scheduler uses it: block tables over pools, and the tensors that follow them.

A step goes: ``reserve`` room for the next tokens of some sequences, ``batch`` them, run the model, which writes keys
and values at the batch's slots, then ``commit`` the tokens. Not safe for use from several threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from attnc.runtime.kv.batch import ragged_batch
from attnc.runtime.kv.pool import PagePool
from attnc.runtime.kv.prefix import Tokens
from attnc.runtime.kv.sequences import SequenceId, Sequences
from attnc.runtime.kv.specs import GroupSpec, RaggedBatch
from attnc.runtime.kv.stats import KVStats
from attnc.runtime.kv.storage import PageStorage


class KVCache:
    """Keys and values of many sequences, in pages (PagedAttention: Kwon et al. 2023, arXiv 2309.06180).

    ``num_pages``: for each group, by name, pages of its pool, the null page included. ``debug`` poisons pages whose
    content has become meaningless, so that a wrong read shows as NaN. Every method either does all it says or raises
    and changes nothing. A sequence's name is any hashable value.
    """

    def __init__(
        self,
        groups: Sequence[GroupSpec],
        num_pages: Mapping[str, int],
        *,
        device: torch.device | str = "cpu",
        debug: bool = False,
    ) -> None:
        names = [group.name for group in groups]
        if not names or len(set(names)) < len(names) or set(names) != set(num_pages):
            raise ValueError(f"layer groups {names} and pools {sorted(num_pages)} must be the same names, each once")
        self.groups = tuple(groups)
        self.storage = {g.name: PageStorage(g, num_pages[g.name], device, debug) for g in groups}
        """For each group, by name: its tensors."""
        self.preemptions = 0
        """Counted by the caller, who frees a sequence to run it again later."""
        self._pools = [
            PagePool(num_pages[g.name], g.page_size, self.storage[g.name].poison if debug else None) for g in groups
        ]
        self._sequences = Sequences(self.groups, self._pools)

    def admit(self, seq: SequenceId, tokens: Tokens, salt: bytes = b"") -> int:
        """Begin a sequence; how many of its leading tokens are in the cache already, always < len(tokens).

        These are committed; the caller reserves, runs and commits the rest, in pieces as it likes. Prefixes are shared
        among sequences with equal ``salt`` only. No pages but those of the prefix are held, yet OutOfPages is raised
        unless those of the rest could be had now (behind a window: those it still holds when all is committed).
        Raises ValueError where the sequence exists or there are no tokens.
        """
        return self._sequences.admit(seq, tokens, salt)

    def reserve(self, seq: SequenceId, number: int) -> None:
        """Room for ``number`` tokens behind the committed ones; a shared last page is copied for that.

        Asking again for no more does nothing. Raises OutOfPages, KeyError for an unknown sequence, and ValueError for
        a number below 1.
        """
        for copy in self._sequences.reserve(seq, number):
            self.storage[copy.group].copy_page(copy.source, copy.target)

    def commit(self, seq: SequenceId, tokens: Tokens) -> None:
        """The next tokens of a sequence have been written at the slots reserved for them.

        Pages that are full now can be found by later prompts, and pages behind a window are given back. Fewer tokens
        than reserved may be committed; the rest of the room stays. Raises ValueError for more, KeyError for an
        unknown sequence.
        """
        self._sequences.commit(seq, tokens)

    def fork(self, seq: SequenceId, new: SequenceId) -> None:
        """A new sequence with the same committed tokens; pages are shared until one of both writes.

        What was reserved for ``seq`` and not committed has to be reserved again. Raises ValueError where ``new``
        exists, KeyError where ``seq`` doesn't.
        """
        self._sequences.fork(seq, new)

    def free(self, seq: SequenceId) -> None:
        """End a sequence. Its full pages stay cached until they are needed. Raises KeyError for an unknown one."""
        self._sequences.free(seq)

    def length(self, seq: SequenceId) -> int:
        """Committed tokens of a sequence. Raises KeyError for an unknown one."""
        return self._sequences[seq].length

    def table(self, seq: SequenceId) -> dict[str, NDArray[np.int32]]:
        """For each group, by name: the page ids of a sequence, 0 for pages given back."""
        return self._sequences.tables(seq)

    def batch(self, requests: Sequence[tuple[SequenceId, int]]) -> RaggedBatch:
        """The tensors of a step that runs the next tokens of some sequences, so many of each, in this order.

        Raises ValueError where a sequence is named twice or has no room for its tokens, KeyError where it is unknown.
        """
        if len({seq for seq, _ in requests}) < len(requests):
            raise ValueError("a sequence can have one run of tokens in a batch: name each once")
        states = [self._sequences[seq] for seq, _ in requests]
        for (seq, number), state in zip(requests, states, strict=True):
            if not 1 <= number <= state.room:
                raise ValueError(f"sequence {seq!r}: {number} tokens in a batch, room for {state.room} is reserved")
        return ragged_batch(self.groups, states, [n for _, n in requests], self.storage[self.groups[0].name].device)

    def stats(self) -> KVStats:
        pools = {group.name: pool.stats() for group, pool in zip(self.groups, self._pools, strict=True)}
        slots = sum(pools[group.name].in_use * group.page_size for group in self.groups)
        states = self._sequences.states.values()
        return KVStats(
            groups=pools,
            sequences=len(states),
            tokens=sum(state.length for state in states),
            waste=self._sequences.empty_slots() / slots if slots else 0.0,
            prompt_tokens=self._sequences.prompt_tokens,
            prefix_hit_tokens=self._sequences.hit_tokens,
            preemptions=self.preemptions,
        )
