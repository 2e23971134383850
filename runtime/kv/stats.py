"""What a cache reports of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PoolStats:
    """Pages of one pool now, without the null page, and what happened to them so far."""

    in_use: int
    """Pages that a sequence holds; a shared one counts once."""
    cached: int
    """Pages that none holds, kept for a prefix that comes again."""
    free: int
    hits: int
    """Pages found by their prefix and taken again."""
    evictions: int
    """Cached pages that were given to other tokens."""


@dataclass(frozen=True)
class KVStats:
    """A cache now, and what happened in it so far."""

    groups: Mapping[str, PoolStats]
    sequences: int
    tokens: int
    """Committed tokens of all sequences; those of a shared prefix count for each of them."""
    waste: float
    """Slots of pages in use that hold no token, over slots of pages in use; 0 where none is in use."""
    prompt_tokens: int
    """Tokens of all admissions so far."""
    prefix_hit_tokens: int
    """Those of them that were in the cache already."""
    preemptions: int
    """As the caller counted them."""

    @property
    def pages(self) -> int:
        """Pages in use, of all groups."""
        return sum(pool.in_use for pool in self.groups.values())

    @property
    def evictions(self) -> int:
        return sum(pool.evictions for pool in self.groups.values())
