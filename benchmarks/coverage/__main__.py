"""``python -m benchmarks.coverage``: measure the zoo, print the tables; a full run also writes docs/coverage.*."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: threads don't survive a fork
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from rich.console import Console

from benchmarks.accept.runner import source_digest
from benchmarks.coverage.record import write_record
from benchmarks.coverage.results import Listed, listed
from benchmarks.coverage.runner import State, run_zoo, shard
from benchmarks.coverage.tables import render
from benchmarks.coverage.tally import complaints

ROOT = Path(__file__).parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Run; 0 where all is well, 1 where a model is wrong, fails or differs from the list, 3 where time ran out."""
    models = listed()
    options = _parser().parse_args(arguments)
    names = _chosen(options, models)
    state = State.of(ROOT / "build" / "coverage", source_digest())
    if options.fresh:
        state.clear()
    from benchmarks.coverage.server import job, prepare

    prepare()
    seconds = None if options.minutes is None else 60 * options.minutes
    finished = run_zoo(names, models, state, job(models), jobs=options.jobs, seconds=seconds, say=_say)
    done = state.load()
    results = [done[name] for name in names if name in done]
    console = Console(width=None if sys.stdout.isatty() else 160)
    render(results, console)
    if not finished:
        console.print("time is up; the same command goes on from here")
        return 3
    if options.only is None and models.keys() <= done.keys():
        write_record([done[name] for name in models], ROOT / "docs")
    return 1 if complaints(results).any else 0


def _say(text: str) -> None:
    print(text, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make coverage", description=__doc__)
    parser.add_argument("--only", help="model types, separated by commas")
    parser.add_argument("--shard", default="1/1", help="I/N: every N-th model from the I-th on")
    parser.add_argument("--jobs", type=int, default=1, help="models to measure at once")
    parser.add_argument("--minutes", type=float, help="start nothing new after that long; call again to go on")
    parser.add_argument("--fresh", action="store_true", help="forget what these sources have measured")
    return parser


def _chosen(options: argparse.Namespace, models: dict[str, Listed]) -> list[str]:
    """The model types asked for. Ends the process with status 2 for a name or a shard that makes no sense."""
    names = list(models) if options.only is None else options.only.split(",")
    if unknown := [name for name in names if name not in models]:
        _parser().error(f"not in the list: {', '.join(unknown)}")
    index, _, count = options.shard.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        _parser().error(f"--shard {options.shard}: expected I/N with 1 <= I <= N")
    return shard(names, int(index), int(count))


if __name__ == "__main__":
    sys.exit(main())
