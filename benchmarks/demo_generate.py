"""``make demo-generate``: a real language model becomes a generator; what was derived, what it writes, and how fast.

Gemma 3 270M, from the packages of the extra ``gemma``; or the Hugging Face folder given as the argument.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

import attnc
from attnc.compiler.checkpoints import Checkpoint, CheckpointError, load_checkpoint
from attnc.compiler.checkpoints.gemma import gguf_path
from attnc.compiler.cli.console import stdout
from attnc.runtime.engine_stats import EngineStats

PROMPTS = (
    "The capital of France is",
    "Water boils at 100 degrees Celsius and freezes at",
    "Once upon a time, in a small village by the sea, there lived",
    "def fibonacci(n):\n",
)
NEW = 40
MAX_LENGTH = 1024
"""Above the window of most of its layers, so that both kinds of layer group show."""


def show_derived(generator: attnc.Generator, seconds: float, console: Console) -> None:
    """What the model became: its layer groups and what their pages hold."""
    program = generator.program
    table = Table(title=f"derived in {seconds:.0f} s, without a line of the model changed", title_justify="left")
    for heading in ("layer group", "attentions", "a query sees", "kept of each token", "page"):
        table.add_column(heading)
    for group in program.groups:
        streams = next(iter(group.sites.values()))
        kept = ", ".join(f"{name} {s.heads}×{s.features} {s.store}" for name, s in zip("KV", streams, strict=False))
        sees = "all before it" if group.window is None else f"the last {group.window}"
        page = f"{group.page_size} tokens, {group.page_bytes / 1024:.0f} KiB"
        table.add_row(group.name, str(len(group.sites)), sees, kept, page)
    console.print(table)


def show_texts(
    generator: attnc.Generator, prompts: Sequence[str], new: int, console: Console
) -> list[attnc.Generation]:
    """All prompts in one batch, greedy: each with what follows, then tokens per second and pages."""
    before, start = generator.engine.stats(), time.perf_counter()
    with console.status("generating"):
        made = generator.generate(list(prompts), max_new_tokens=new)
    seconds = time.perf_counter() - start
    for prompt, generation in zip(prompts, made, strict=True):
        console.print(Text(f"\n{prompt}", style="bold").append(generation.text, style="not bold"))
    console.print()
    console.print(_summary(before, generator.engine.stats(), seconds), highlight=False)
    return made


def _summary(before: EngineStats, after: EngineStats, seconds: float) -> str:
    generated = after.generated_tokens - before.generated_tokens
    computed = after.computed_tokens - before.computed_tokens
    found = after.cache.prefix_hit_tokens - before.cache.prefix_hit_tokens
    pages = sum(pool.cached for pool in after.cache.groups.values())
    return (
        f"{generated} tokens in {seconds:.1f} s: {generated / seconds:.1f} tokens/s in {after.steps - before.steps} "
        f"steps; {computed} computed, prompts included, {found} found in the cache; {pages} pages are kept"
    )


def demonstrate(checkpoint: Checkpoint, console: Console) -> bool:
    """Derive, generate, and go on from what was generated; whether every prompt was continued."""
    console.rule(f"{checkpoint.name}: a generator from an unmodified model")
    start = time.perf_counter()
    with console.status("deriving"):
        generator = attnc.Generator(
            checkpoint.model, checkpoint.tokenizer, max_length=MAX_LENGTH, stop_tokens=checkpoint.eos_token_ids
        )
    show_derived(generator, time.perf_counter() - start, console)
    first = show_texts(generator, PROMPTS, NEW, console)
    longer = [prompt + made.text for prompt, made in zip(PROMPTS, first, strict=True)]
    console.rule("going on from there: what was computed is found in the cache")
    second = show_texts(generator, longer, NEW, console)
    return all(made.tokens for made in (*first, *second))


def main(arguments: list[str]) -> int:
    """Show it; 1, with what to install, where there is no model."""
    try:
        checkpoint = load_checkpoint(arguments[0] if arguments else gguf_path())
    except CheckpointError as error:
        print(f"make demo-generate: {error}\n(pip of this tree is .venv/bin/python -m pip)", file=sys.stderr)
        return 1
    return 0 if demonstrate(checkpoint, stdout()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
