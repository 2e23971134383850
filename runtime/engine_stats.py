"""What an engine reports of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attnc.runtime.kv.stats import KVStats
from attnc.runtime.requests import Finish


@dataclass(frozen=True)
class EngineStats:
    """An engine now, and what it did so far."""

    running: int
    """Requests with pages in the cache."""
    waiting: int
    steps: int
    computed_tokens: int
    """Tokens of prompts and generated ones that went through the program; those computed again count again."""
    generated_tokens: int
    finished: Mapping[Finish, int]
    """How many requests ended, by why."""
    cache: KVStats
    """Preemptions and reused prefixes are counted here."""
