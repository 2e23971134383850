"""Which kernels are run in the interpreter: a pairwise covering set of kind, head dimension, rows and dtype."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from attnc.compiler.machine.variants import VARIANTS

HEAD_DIMS = (40, 64, 80, 96, 128, 256)
ROWS = ("odd", "one", "dead")
"""Odd lengths; a single query and key; rows that see no key."""
DTYPES = ("f32", "f16", "bf16")


@dataclass(frozen=True)
class Case:
    """One run of one kernel."""

    variant: str
    head_dim: int
    rows: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.variant}-d{self.head_dim}-{self.rows}-{self.dtype}"


AXES: tuple[tuple[object, ...], ...] = (tuple(VARIANTS), HEAD_DIMS, ROWS, DTYPES)


def everything() -> list[tuple[Case, ...]]:
    """The whole product; cases that differ in their rows only are together, as they share compiled programs."""
    kinds = itertools.product(VARIANTS, HEAD_DIMS, DTYPES)
    return [tuple(Case(variant, d, rows, dtype) for rows in ROWS) for variant, d, dtype in kinds]


def pairwise(seed: int = 0) -> list[Case]:
    """Few cases that hold every pair of values of two axes: greedily, the candidate with most new pairs each time."""
    chance = random.Random(seed)
    wanted = {pair for case in itertools.product(*AXES) for pair in _pairs(case)}
    chosen: list[tuple[object, ...]] = []
    while wanted:
        candidates = [tuple(chance.choice(axis) for axis in AXES) for _ in range(100)]
        candidates.append(_completed(chance, next(iter(sorted(wanted, key=str)))))
        best = max(candidates, key=lambda case: len(wanted & set(_pairs(case))))
        chosen.append(best)
        wanted -= set(_pairs(best))
    return [Case(*case) for case in sorted(chosen, key=str)]  # type: ignore[arg-type]


def _pairs(case: tuple[object, ...]) -> Iterator[tuple[tuple[int, object], tuple[int, object]]]:
    yield from itertools.combinations(enumerate(case), 2)


def _completed(chance: random.Random, pair: tuple[tuple[int, object], tuple[int, object]]) -> tuple[object, ...]:
    known = dict(pair)
    return tuple(known.get(i, chance.choice(axis)) for i, axis in enumerate(AXES))
