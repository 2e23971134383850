"""Checks that are no pytest runs: each function returns its figures, or raises AssertionError with the reason."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLONE = ROOT / "build" / "accept" / "clone"

Figures = dict[str, object]


def install_clone() -> Figures:
    """Clone the committed tree and make its ``.venv``, as a newcomer's first command would."""
    shutil.rmtree(CLONE, ignore_errors=True)
    run("git", "clone", "--quiet", str(ROOT), str(CLONE), cwd=ROOT)
    seconds, _ = run("make", "venv", cwd=CLONE)
    return {"seconds": round(seconds)}


def demo_in_clone() -> Figures:
    """``make demo`` there; the lines with results are the figures."""
    seconds, text = run("make", "demo", cwd=CLONE)
    assert "6/6" in text, f"no 6/6 in\n{text}"
    times = re.findall(r"^\s+(eager|torch\.compile|attnc)\s+([\d.]+) ms", text, flags=re.MULTILINE)
    assert len(times) == 6, f"two models with three times each expected in\n{text}"
    return {"seconds": round(seconds), "ms": [f"{name} {ms}" for name, ms in times]}


def compile_time() -> Figures:
    """A Llama of 32 layers through the passes: at most 5 s, median of 5 on one thread, every attention fused."""
    from benchmarks.compile_time import passes_seconds

    measured = passes_seconds()
    figures: Figures = {
        "median_s": round(measured.total.median, 2),
        "fastest_s": round(measured.total.low, 2),
        "slowest_s": round(measured.total.high, 2),
        **dataclasses.asdict(measured.counts),
    }
    assert measured.counts.fused == measured.counts.sites == 32 and measured.counts.ropes == 64, figures
    assert measured.total.median <= 5, figures
    return figures


def make_check() -> Figures:
    """``make check``."""
    seconds, _ = run("make", "check", cwd=ROOT)
    return {"seconds": round(seconds)}


def make_test(part: str) -> Figures:
    """One of two parts of ``make test``, ``compiler`` or ``rest``, with its time and its last line."""
    tests = sorted(
        path
        for path in (ROOT / "tests").iterdir()
        if path.name.startswith("test_") or (path.is_dir() and path.name[0] != "_")
    )
    chosen = [f"tests/{t.name}" for t in tests if (t.name == "compiler") == (part == "compiler")]
    seconds, text = run("make", "test", f"PYTEST_ARGS={' '.join(chosen)}", cwd=ROOT)
    assert seconds <= 450, f"took {seconds:.0f} s"
    return {"seconds": round(seconds), "summary": text.strip().splitlines()[-1]}


def run(*command: str, cwd: Path) -> tuple[float, str]:
    """Seconds and output of a command. Raises AssertionError with its last lines where it fails."""
    start = time.perf_counter()
    # A make inside make would inherit its flags, and the clone our virtual environment.
    hidden = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "VIRTUAL_ENV", "OMP_NUM_THREADS")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    tail = "\n".join(done.stdout.splitlines()[-30:])
    assert done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{tail}"
    return time.perf_counter() - start, done.stdout
