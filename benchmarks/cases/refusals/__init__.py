"""Models no generator can be made of, each beside a twin that differs in one op and is a decoder.

A row of a decoder may know of other tokens only what attention reads: keys and values of its own sequence, up to its
own position. Each bad model breaks that in one place, and running it shows so (``PROPERTIES``). So neither accepting by
look nor refusing everything passes.

Not here, since no run can tell them from a decoder: a bias by data of the key (it could be cached like a key), learned
tokens in front of the sequence that stay visible, the first token added to all, weights used twice on the values.
"""

from __future__ import annotations

from benchmarks.cases.refusals import (
    batches,
    choices,
    layouts,
    masks,
    pooling,
    positions,
    routing,
    scans,
    scores,
    values,
)
from benchmarks.cases.refusals.oracle import PROPERTIES
from benchmarks.cases.refusals.pairs import Pair, judged

__all__ = ["PAIRS", "PROPERTIES", "Pair", "judged", "refusal"]

PAIRS: list[Pair] = [
    *masks.PAIRS,
    *scores.PAIRS,
    *values.PAIRS,
    *layouts.PAIRS,
    *pooling.PAIRS,
    *scans.PAIRS,
    *routing.PAIRS,
    *positions.PAIRS,
    *batches.PAIRS,
    *choices.PAIRS,
]


def refusal(name: str) -> Pair:
    """The pair of this name. Raises StopIteration where there is none."""
    return next(p for p in PAIRS if p.name == name)
