"""The acceptance runner: resumes, never mixes sources, fails where a check fails, lists what is open."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.accept import runner, stage_1, stage_2, stage_3, stage_4
from benchmarks.accept.bugs import LIST
from benchmarks.accept.checks import Check, Shard, call, suite
from benchmarks.accept.runner import ROOT, Files, accept, source_digest
from benchmarks.accept.shard import Outcome, run_shard
from tests.triton import test_everywhere, test_kernel_matrix

CHECKS = (
    Check("first", "one thing", (suite("a", "x"), suite("b", "y"))),
    Check("second", "another", (call("c", "z"),)),
    Check("third", "not built yet"),
)


class Recorder:
    """Stands for running shards: fails those named, remembers what ran."""

    def __init__(self, *failing: str) -> None:
        self.failing, self.ran = failing, list[str]()

    def __call__(self, shard: Shard) -> Outcome:
        self.ran.append(shard.name)
        failed = shard.name in self.failing
        return Outcome(not failed, 1.0, figures={"n": 3}, detail="exit 1\nboom" if failed else "")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "state.json", tmp_path / "deep" / "record.json")


@pytest.fixture
def go(files: Files) -> Callable[..., int]:
    def run(recorder: Recorder, source: str = "s", **options: float) -> int:
        return accept(1, CHECKS, files, source=source, run=recorder, say=lambda text: None, **options)

    return run


def statuses(files: Files) -> dict[str, str]:
    return {c["name"]: c["status"] for c in json.loads(files.record.read_text())["checks"]}


def test_all_passing(files: Files, go: Callable[..., int]) -> None:
    assert go(Recorder()) == 0
    assert statuses(files) == {"first": "passed", "second": "passed", "third": "open"}
    record = json.loads(files.record.read_text())
    assert record["checks"][0]["shards"]["a"]["figures"] == {"n": 3}
    assert record["versions"]["torch"] and record["machine"]["cores"]


def test_a_failure_fails_the_run_and_is_tried_again(files: Files, go: Callable[..., int]) -> None:
    assert go(Recorder("b")) == 1
    assert statuses(files) == {"first": "failed", "second": "passed", "third": "open"}
    again = Recorder()
    assert go(again) == 0
    assert again.ran == ["b"]


def test_other_sources_start_afresh(go: Callable[..., int]) -> None:
    go(Recorder())
    again = Recorder()
    go(again, source="t")
    assert again.ran == ["a", "b", "c"]


def test_time_running_out_keeps_what_passed(files: Files, go: Callable[..., int]) -> None:
    assert go(Recorder(), seconds=-1.0) == 3
    assert not files.record.exists()


def test_a_damaged_state_is_ignored(files: Files, go: Callable[..., int]) -> None:
    files.state.write_text("{")
    recorder = Recorder()
    assert go(recorder) == 0
    assert recorder.ran == ["a", "b", "c"]


def test_a_pytest_shard(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        "def test_good(record_property):\n    record_property('figure', 7)\n\ndef test_bad():\n    assert False\n"
    )
    target = str(tmp_path / "test_x.py")
    good = run_shard(suite("t", "-p", "no:cacheprovider", f"{target}::test_good"))
    assert good.passed and good.figures == {"passed": 1, "skipped": 0, "test_good: figure": "7"}
    bad = run_shard(suite("t", "-p", "no:cacheprovider", target))
    assert not bad.passed and "1 failed" in bad.detail
    none = run_shard(suite("t", "-p", "no:cacheprovider", target, "-k", "absent"))
    assert not none.passed


def test_a_run_of_skips_is_no_pass(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text("import pytest\n\n@pytest.mark.skip\ndef test_it():\n    pass\n")
    assert not run_shard(suite("t", "-p", "no:cacheprovider", str(tmp_path / "test_x.py"))).passed


def test_a_call_shard() -> None:
    good = run_shard(call("c", "tests_accept_sample:absent"))
    assert not good.passed and "ModuleNotFoundError" in good.detail


def test_a_shard_is_stopped_at_its_limit(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text("import time\n\ndef test_it():\n    time.sleep(60)\n")
    slow = run_shard(suite("t", "-p", "no:cacheprovider", str(tmp_path / "test_x.py")), limit=2)
    assert not slow.passed and slow.detail.startswith("stopped after 2 s")


def test_a_call_takes_arguments() -> None:
    shard = run_shard(call("c", "benchmarks.accept.checks:suite", "name", "argument"))
    assert not shard.passed and "Shard is not JSON serializable" in shard.detail


def test_what_judges_runs_after_all_others(files: Files) -> None:
    checks = (Check("c", "", (call("judge", "z", last=True), call("timed", "z", retries=1), call("plain", "z"))),)
    recorder = Recorder()
    accept(1, checks, files, source="s", run=recorder, jobs=2, say=lambda text: None)
    assert recorder.ran == ["plain", "timed", "judge"]


def test_a_run_may_rewrite_its_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a bug test that fuses more would start the run it belongs to afresh."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    kept, source = tmp_path / LIST.relative_to(ROOT), tmp_path / "source.py"
    kept.parent.mkdir(parents=True)
    before = source_digest()
    kept.write_text("{}")
    assert source_digest() == before
    source.write_text("1")
    assert source_digest() != before


@pytest.mark.parametrize("stage", [stage_1, stage_2, stage_3, stage_4], ids=["1", "2", "3", "4"])
def test_names_are_unique(stage: ModuleType) -> None:
    names = [check.name for check in stage.CHECKS]
    assert len(set(names)) == len(names)
    for check in stage.CHECKS:
        assert len({shard.name for shard in check.shards}) == len(check.shards)


def test_every_part_of_a_cut_suite_has_its_shard() -> None:
    assert {name: parts for name, (_, parts, _) in test_everywhere.SUITES.items()} == stage_3.EVERYWHERE
    assert test_kernel_matrix.SHARDS == stage_3.SHARDS
