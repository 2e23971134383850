"""``python -m benchmarks.accept --stage N``."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys

from benchmarks.accept.runner import Files, accept, source_digest


def main() -> int:
    """Run a stage; the exit status is :func:`~benchmarks.accept.runner.accept`'s, 2 for an unknown stage."""
    parser = argparse.ArgumentParser(prog="make accept", description=__doc__)
    parser.add_argument("--stage", type=int, required=True)
    parser.add_argument("--minutes", type=float, help="start nothing new after that long; call again to go on")
    parser.add_argument("--jobs", type=int, default=1, help="shards to run at once")
    options = parser.parse_args()
    module = f"benchmarks.accept.stage_{options.stage}"
    if importlib.util.find_spec(module) is None:
        parser.error(f"no stage {options.stage}")
    seconds = None if options.minutes is None else 60 * options.minutes
    checks = importlib.import_module(module).CHECKS
    return accept(
        options.stage, checks, Files.of(options.stage), source=source_digest(), seconds=seconds, jobs=options.jobs
    )


if __name__ == "__main__":
    sys.exit(main())
