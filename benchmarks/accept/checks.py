"""What a check is: a promise in words, and the shards that prove it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LIMIT = 1800
"""Seconds after which a shard is taken to hang. One takes far less on a machine of its own, so that a run can stop and
go on between two of them; beside other work it may take several times as long."""


@dataclass(frozen=True)
class Shard:
    """One process. ``pytest``: ``target`` are arguments of pytest; at least one test must pass and none fail.

    ``call``: ``target`` is ``module:function`` and its arguments; the function returns figures (a JSON object) or
    raises AssertionError.
    """

    name: str
    kind: Literal["pytest", "call"]
    target: tuple[str, ...]
    retries: int = 0
    """Further tries after a failure; 1 for a shard that asserts a time, else 0."""
    last: bool = False
    """Runs after all others, alone: it judges what they left."""


@dataclass(frozen=True)
class Check:
    """A promise. Without shards it is open: listed as such, neither passed nor failed."""

    name: str
    promise: str
    shards: tuple[Shard, ...] = ()


def suite(name: str, *arguments: str) -> Shard:
    """A shard that runs pytest with these arguments."""
    return Shard(name, "pytest", arguments)


def call(name: str, target: str, *arguments: str, retries: int = 0, last: bool = False) -> Shard:
    """A shard that calls ``module:function`` with these arguments."""
    return Shard(name, "call", (target, *arguments), retries, last)
