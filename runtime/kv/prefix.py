"""Finds the pages of a prompt's prefix that are in the cache already. Knows no tensors.

A full page has a key: the digest of the key of the page before it and of its own tokens, so a key stands for all tokens
up to the end of its page. This is block-level sharing (Kwon et al. 2023, arXiv 2309.06180, section 4.4) by the chain of
hashes that vLLM uses for it. With 128 bits of BLAKE2b, equal keys mean equal tokens: a collision can't be made.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attnc.runtime.kv.pool import PagePool
from attnc.runtime.kv.specs import NULL_PAGE, GroupSpec

KEY_BYTES = 16
Tokens = Sequence[int]


class PrefixChain:
    """Keys of the full pages of one sequence, as its tokens come in."""

    def __init__(self, page_size: int, key: bytes, tail: Iterable[int] = ()) -> None:
        self.page_size = page_size
        self.key = key
        """Of the last full page; of the salt before the first."""
        self._tail = array("q", tail)

    @staticmethod
    def root(page_size: int, salt: bytes) -> PrefixChain:
        """The chain before the first token. Sequences with different salts share nothing."""
        return PrefixChain(page_size, hashlib.blake2b(salt, digest_size=KEY_BYTES, person=b"attnc.kv.salt").digest())

    def extend(self, tokens: Tokens) -> list[bytes]:
        """Append tokens; the keys of the pages that they filled."""
        waiting = self._tail + array("q", tokens)
        full = len(waiting) - len(waiting) % self.page_size
        keys = []
        for begin in range(0, full, self.page_size):
            content = waiting[begin : begin + self.page_size].tobytes()
            self.key = hashlib.blake2b(self.key + content, digest_size=KEY_BYTES).digest()
            keys.append(self.key)
        self._tail = waiting[full:]
        return keys

    def copy(self) -> PrefixChain:
        return PrefixChain(self.page_size, self.key, self._tail)


def root_chains(groups: Sequence[GroupSpec], salt: bytes) -> dict[int, PrefixChain]:
    """A chain for each page size there is."""
    return {group.page_size: PrefixChain.root(group.page_size, salt) for group in groups}


@dataclass(frozen=True)
class PrefixHit:
    """The longest prefix of a prompt that every layer group has."""

    tokens: int
    pages: tuple[list[int], ...]
    """For each group: its pages, NULL_PAGE where no later query reads."""
    chains: dict[int, PrefixChain]
    """By page size: the chain behind the prefix."""


def longest_hit(groups: Sequence[GroupSpec], pools: Sequence[PagePool], tokens: Tokens, salt: bytes) -> PrefixHit:
    """The longest cached prefix, shorter than the prompt, that is whole pages in every group. Changes nothing.

    A group without a window needs all of the prefix's pages. One with a window needs only the run of pages at its end
    that a query behind the prefix may still read.
    """
    unit = math.lcm(*(group.page_size for group in groups))
    chains = root_chains(groups, salt)
    found: list[list[int]] = [[] for _ in groups]
    runs = [0] * len(groups)
    hit, keys_at_hit = 0, {size: chain.key for size, chain in chains.items()}
    for end in range(unit, len(tokens), unit):
        keys = {size: chain.extend(tokens[end - unit : end]) for size, chain in chains.items()}
        for g, group in enumerate(groups):
            for key in keys[group.page_size]:
                page = pools[g].lookup(key)
                found[g].append(page)
                runs[g] = runs[g] + 1 if page != NULL_PAGE else 0
        if any(group.window is None and runs[g] < len(found[g]) for g, group in enumerate(groups)):
            break
        if all(runs[g] >= len(found[g]) - group.first_page(end) for g, group in enumerate(groups)):
            hit, keys_at_hit = end, {size: chain.key for size, chain in chains.items()}
    pages = tuple(_needed(group, found[g], hit) for g, group in enumerate(groups))
    return PrefixHit(hit, pages, {size: PrefixChain(size, key) for size, key in keys_at_hit.items()})


def _needed(group: GroupSpec, found: list[int], hit: int) -> list[int]:
    """The group's pages of a prefix of ``hit`` tokens, those behind its window left out."""
    first = group.first_page(hit)
    return [NULL_PAGE] * first + found[first : hit // group.page_size]
