"""Reproductions of other compilers' attention bugs: all must pass, and no attention that was fused may be lost.

They lie in a folder outside the project, named by ``ATTNC_BUG_SUITE``. ``fused_bugs.json`` keeps, per test, how many
attentions are fused and with which codes the rest is left; it may only grow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("fused_bugs.json")
FIGURES = "ATTNC_BUG_FIGURES"


class Recorder:
    """A pytest plugin: what each test fused and left."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.found: dict[str, dict[str, object]] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item):  # type: ignore[no-untyped-def]
        from attnc.compiler.report import reports

        before = len(reports())
        yield
        sites = [site for report in reports()[before:] for site in report.sites]
        notes = [note for report in reports()[before:] for note in report.notes if note.code.startswith("ATTNC-HOST")]
        left = Counter([s.code for s in sites if not s.fused] + [n.code for n in notes])
        self.found[item.nodeid] = {"fused": sum(s.fused for s in sites), "left": dict(sorted(left.items()))}

    def pytest_sessionfinish(self) -> None:
        self.target.write_text(json.dumps(self.found), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder when this module is loaded with ``-p``."""
    if target := os.environ.get(FIGURES):
        config.pluginmanager.register(Recorder(Path(target)))


def known_bugs() -> dict[str, object]:
    """Run the suite on the aten host. Raises AssertionError where a test fails or fuses less than the list says."""
    folder = os.environ.get("ATTNC_BUG_SUITE", "")
    assert folder and Path(folder).is_dir(), "set ATTNC_BUG_SUITE to the folder of the reproductions"
    with tempfile.TemporaryDirectory() as scratch:
        figures = Path(scratch) / "figures.json"
        environment = {
            **os.environ,
            FIGURES: str(figures),
            "ATTNC_HOST": "aten",
            "ATTN_BUGS_BACKEND": "attnc",
            "ATTN_BUGS_FUSION": "attnc.compiler.report:fused_count",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "OMP_NUM_THREADS": "1",
        }
        files = sorted(str(f) for f in Path(folder).glob("test_dev_*.py") if "onnx" not in f.name)
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--show-capture=no",
                "-p",
                "no:cacheprovider",
                "-p",
                __name__,
                *files,
            ],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:]
        found = json.loads(figures.read_text(encoding="utf-8"))
    return compare(found)


def compare(found: dict[str, dict[str, object]]) -> dict[str, object]:
    """Judge figures against the list and write tests that are new or fuse more. Raises AssertionError."""
    known = json.loads(LIST.read_text(encoding="utf-8")) if LIST.exists() else {}
    lost = [n for n, k in known.items() if n not in found or int(found[n]["fused"]) < int(k["fused"])]  # type: ignore[call-overload]
    assert not lost, f"fused before, not now: {', '.join(lost)}"
    LIST.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    left: Counter[str] = Counter()
    for entry in found.values():
        left.update(entry["left"])  # type: ignore[arg-type]
    return {"tests": len(found), "fused": sum(int(e["fused"]) for e in found.values()), "left": dict(left)}  # type: ignore[call-overload]
