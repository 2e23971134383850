"""The compiler's own tests of results with Triton's kernels in place of C++'s, and every plan of theirs for a GPU."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnc.codegen.plan import KernelPlan
from attnc.codegen.targets import capability
from attnc.codegen.triton.emitter import emit, launch
from attnc.compiler.machine import build
from attnc.compiler.machine.build import WORKER, compile_kernel
from tests.triton.versions import ROOT

pytestmark = pytest.mark.slow

MATRIX = "tests/compiler/test_matrix.py::"
SUITES = {
    "spellings": ("tests/compiler/test_spellings.py", 3, 74),
    "traps": ("tests/compiler/test_traps.py", 6, 169),
    "models": (f"{MATRIX}test_aten", 6, 60),
    "spellings-in-half": (f"{MATRIX}test_spelling", 5, 114),
    "sizes": (f"{MATRIX}test_sizes_of_spelling", 12, 342),
    "traps-in-half": (f"{MATRIX}test_pair", 12, 316),
}
"""Tests, in how many parts they run, and at least how many there are, none of them skipped.

Of the matrix, tests with Inductor and of gradients are left out: what is judged here is a kernel's own result.
"""
DESELECTED: dict[str, str] = {}
"""Tests that are about C++ kernels, and why."""
PARTS = [(suite, part) for suite, (_, parts, _) in SUITES.items() for part in range(parts)]

COMPILER = (Path(build.__file__), WORKER)
"""What compiles a text."""
COMPILED = ROOT / "build" / "compiled"
"""A file for each kernel that was compiled, named by all that goes into it: suites share most of their plans."""


@pytest.mark.parametrize(("suite", "part"), PARTS, ids=[f"{suite}-{part:02}" for suite, part in PARTS])
def test_suite(suite: str, part: int, tmp_path: Path) -> None:
    """In the interpreter each result is right, and each plan, as it is for a GPU, compiles."""
    tests, parts, least = SUITES[suite]
    passed = run(tests, f"{part}/{parts}", tmp_path)
    assert passed >= least // parts
    refused = {path.name: path.read_text() for path in tmp_path.glob("*.refused")}
    assert refused == {}
    for path in sorted(tmp_path.glob("*.json")):
        compile_for_gpu(KernelPlan.from_json(path.read_text(encoding="utf-8")))


def run(tests: str, part: str, folder: Path) -> int:
    """How many tests of a part pass; none fails."""
    words = "-m pytest -q --tb=short -p no:cacheprovider -p tests.triton.everywhere".split()
    deselected = [f"--deselect={test}" for test in DESELECTED]
    command = [sys.executable, *words, f"--plans={folder}", f"--part={part}", *deselected, tests]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None, done.stdout[-2000:]
    return int(found[1])


def compile_for_gpu(plan: KernelPlan) -> None:
    """Compile a plan's kernel, unless the same text was compiled the same way before."""
    text, how = emit(plan).text, launch(plan)
    content = "\0".join(
        [text, repr(how), plan.target, importlib.metadata.version("triton"), *(path.read_text() for path in COMPILER)]
    )
    done = COMPILED / hashlib.sha256(content.encode()).hexdigest()
    if not done.exists():
        binary = compile_kernel(text, how, capability(plan.target))
        assert binary.code and binary.target == "sm_90"
        done.parent.mkdir(parents=True, exist_ok=True)
        done.touch()
