"""Pairs of programs that differ in one op.

The trap must not be given its twin's meaning: it is fused by its own, or left to the host with a code. The twin must
fuse. So neither fusing by look nor refusing everything passes.
"""

from __future__ import annotations

from benchmarks.cases.traps import layouts, masks, scores, softmaxes, weights
from benchmarks.cases.traps.pairs import Pair

__all__ = ["PAIRS", "Pair"]

PAIRS: list[Pair] = [*layouts.PAIRS, *masks.PAIRS, *scores.PAIRS, *weights.PAIRS, *softmaxes.PAIRS]
