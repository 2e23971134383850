"""How the coverage benchmark runs: forked jobs, state, attribution, sums and pictures."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnc.compiler.report import Note, Report, Site
from benchmarks.coverage.__main__ import main
from benchmarks.coverage.attribution import attribute
from benchmarks.coverage.fork import Ended, run_forked
from benchmarks.coverage.picture import draw
from benchmarks.coverage.record import record
from benchmarks.coverage.results import Left, Listed, Result, listed, lost
from benchmarks.coverage.runner import State, run_zoo, shard
from benchmarks.coverage.tally import by_family, complaints, obstacles, subject, total
from benchmarks.coverage.truth import Truth
from benchmarks.coverage.watch import Break, Graph

# -- the list ----------------------------------------------------------------------------------------------------------


def test_the_list_only_grows() -> None:
    """Raise these figures with the list; never lower them."""
    models = listed()
    assert len(models) >= 361
    assert sum(model.sites for model in models.values()) >= 947
    assert all(model.sites > 0 for model in models.values())
    assert list(models) == sorted(models)


# -- forked jobs -------------------------------------------------------------------------------------------------------


def job(name: str) -> dict[str, Any]:
    if name == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "hang":
        time.sleep(60)
    if name == "raise":
        raise ValueError("no such layer")
    return {"name": name}


def ends(names: Sequence[str], folder: Path, **options: Any) -> dict[str, Ended]:
    return {end.name: end for end in run_forked(names, job, folder, **{"limit": 30.0, **options})}


def test_each_way_a_job_ends(tmp_path: Path) -> None:
    found = ends(["good", "crash", "raise"], tmp_path, jobs=3)
    assert found["good"].fields == {"name": "good"}
    assert (found["crash"].outcome, found["crash"].detail.splitlines()[-1]) == ("crashed", "died of SIGKILL")
    assert found["raise"].outcome == "failed" and found["raise"].detail.endswith("ValueError: no such layer")


def test_a_job_is_stopped_at_its_limit(tmp_path: Path) -> None:
    start = time.monotonic()
    found = ends(["hang", "good"], tmp_path, limit=0.5)
    assert found["hang"].outcome == "stopped" and found["hang"].detail == "stopped after 0 s"
    assert found["good"].fields and time.monotonic() - start < 20


def test_nothing_starts_after_the_time(tmp_path: Path) -> None:
    assert ends(["good"], tmp_path, until=time.monotonic() - 1) == {}


# -- the run and its state ---------------------------------------------------------------------------------------------

MODELS = {name: Listed("decoder", 2) for name in ("a", "b", "c", "d", "e")}


def result(name: str, **fields: Any) -> Result:
    return replace(Result(name, "decoder", "measured", 2, 2, fused=2, reported=2, ran=2, right=True), **fields)


def measured(name: str) -> dict[str, Any]:
    return result(name).to_dict()


def broken(name: str) -> dict[str, Any]:
    return job("crash") if name == "b" else job("raise") if name == "c" else measured(name)


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State.of(tmp_path, "f" * 64)


def go(state: State, names: Sequence[str], work: Callable[[str], dict[str, Any]], **options: Any) -> list[str]:
    """Run, and give the lines that were said of models."""
    said: list[str] = []
    run_zoo(names, MODELS, state, work, say=said.append, limit=30.0, **options)
    return said[1:]


def test_a_run_resumes(state: State) -> None:
    assert len(go(state, ["a", "b"], measured)) == 2
    assert go(state, ["a", "b"], measured) == []
    (line,) = go(state, ["a", "b", "c"], measured)
    assert "c: 2/2 fused" in line
    assert state.load() == {name: result(name) for name in "abc"}


def test_a_crash_counts_as_left_and_is_run_again(state: State) -> None:
    said = go(state, ["a", "b", "c"], broken)
    assert "b: 0/2 fused" in said[1] and "CRASHED died of SIGKILL" in said[1]
    assert "FAILED ValueError: no such layer" in said[2]
    done = state.load()
    assert (done["b"].sites, done["b"].fused, done["b"].left[0].sites) == (2, 0, 2)
    (line,) = go(state, ["a", "b", "c"], measured)
    assert "b: 2/2" in line and state.load()["b"] == result("b")


def test_other_sources_start_afresh(state: State) -> None:
    go(state, ["a"], measured)
    other = State.of(state.file.parent, "e" * 64)
    assert other.load() == {} and len(go(other, ["a"], measured)) == 1


def test_torn_lines_are_passed_over(state: State) -> None:
    state.append(result("a"))
    with state.file.open("a", encoding="utf-8") as file:
        file.write('[1]\n{"model": "x"}\n' + json.dumps(result("b").to_dict())[:-5])
    assert list(state.load()) == ["a"]


def test_a_run_out_of_time_is_not_finished(state: State) -> None:
    assert run_zoo(["a"], MODELS, state, measured, seconds=-1, say=lambda text: None) is False
    assert state.load() == {}


def test_shards_part_the_list() -> None:
    names = list("abcdefg")
    parts = [shard(names, i, 3) for i in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == names and parts[1] == ["b", "e"]


@pytest.mark.parametrize("arguments", [["--only", "bert,nobody"], ["--shard", "3/2"], ["--shard", "0/2"]])
def test_a_choice_that_makes_no_sense(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert ("nobody" if "--only" in arguments else arguments[1]) in capsys.readouterr().err


# -- attribution -------------------------------------------------------------------------------------------------------

FUSED = Site(0, True, "ATTNC-FUSED", "m.py:1")
REFUSED = Site(
    1,
    False,
    "ATTNC-SCORE-OP",
    "/x/site-packages/lib/m.py:2",
    "  w = s.softmax(-1)",
    reason="aten.cos (at /x/y/site-packages/lib/m.py:1)",
)
ROUTER = Site(2, False, "ATTNC-NOT-ATTENTION", "m.py:3", reason="no contraction")
REFUSAL = Left("ATTNC-SCORE-OP", "aten.cos (at lib/m.py:1)", "lib/m.py:2", "w = s.softmax(-1)")
CUT = Left("GRAPH-BREAK", "item()", "m.py:9")
VMAP = Note("ATTNC-HOST-VMAP", "vmap")


def graph(*sites: Site, runs: int = 1, notes: Sequence[Note] = ()) -> Graph:
    return Graph(Report("g", sites=list(sites), notes=list(notes)), runs=runs)


@pytest.mark.parametrize(
    ("sites", "ran", "graphs", "expected"),
    [
        (1, 1, [graph(FUSED, ROUTER)], (1, (), ())),
        (2, 1, [graph(FUSED, REFUSED, ROUTER)], (1, (REFUSAL,), ())),
        (4, 2, [graph(FUSED, REFUSED, runs=2)], (2, (replace(REFUSAL, sites=2),), ())),
        (1, 1, [graph(FUSED, REFUSED)], (1, (), (REFUSAL,))),
        (1, 2, [graph(FUSED, FUSED)], (1, (), (Left("ATTNC-FUSED", "fused"),))),
        (1, 0, [graph(REFUSED, runs=0)], (0, (CUT,), ())),
        (3, 1, [graph(FUSED), graph(notes=[VMAP])], (1, (Left("ATTNC-HOST-VMAP", "vmap", sites=2),), ())),
    ],
    ids=["router", "refused", "twice", "refused-beyond", "fused-beyond", "never-run", "host"],
)
def test_attribution(sites: int, ran: int, graphs: Sequence[Graph], expected: tuple[object, ...]) -> None:
    truth = Truth(sites, dead=0, native=0, others=0)
    assert tuple(attribute(truth, ran, graphs, [Break("item()", "m.py:9")])) == expected


def test_an_attention_nobody_reports() -> None:
    downgrade = Note("ATTNC-DENSE-SIDE", "a mask is read")
    left = attribute(Truth(3, dead=1, native=0, others=0), 1, [graph(ROUTER, notes=[downgrade])], []).left
    assert [(entry.code, entry.sites) for entry in left] == [("DEAD-CODE", 1), ("NOT-REPORTED", 1)]


# -- sums --------------------------------------------------------------------------------------------------------------

SCORE = Left("ATTNC-SCORE-OP", "aten.cos.default between Q·Kᵀ and the softmax", "a.py:1")
RESULTS = (
    result("a"),
    result("b", sites=3, fused=1, left=(replace(SCORE, sites=2),)),
    result("c", family="vision", fused=0, left=(SCORE, Left("ATTNC-LAYOUT", "%view_7 cuts 4 of 12", "c.py:4"))),
    replace(lost("d", "vision", 5, "stopped", "x\nstopped after 9 s"), seconds=9.0),
)


def test_sums() -> None:
    whole = total(RESULTS)
    assert (whole.models, whole.sites, whole.fused) == (4, 12, 3)
    assert whole.left == {"ATTNC-SCORE-OP": 3, "ATTNC-LAYOUT": 1, "STOPPED": 5}
    assert whole.sites == whole.fused + whole.left.total()
    rows = by_family(RESULTS)
    assert {name: (row.models, row.sites, row.fused) for name, row in rows.items()} == {
        "decoder": (2, 5, 3),
        "vision": (2, 7, 0),
    }


def test_obstacles_are_grouped_by_operator() -> None:
    found = [(o.sites, o.code, o.what, o.models) for o in obstacles(RESULTS)]
    assert found == [
        (5, "STOPPED", "stopped after … s", ["d"]),
        (3, "ATTNC-SCORE-OP", "aten.cos", ["b", "c"]),
        (1, "ATTNC-LAYOUT", "… cuts … of …", ["c"]),
    ]
    assert subject("aten.cos.default is not understood") == subject("aten.cos.out here")


def test_complaints() -> None:
    wrong = result("w", right=False, verdict="error 1", reported=3, beyond=(SCORE,))
    found = complaints([*RESULTS, wrong, result("u", right=None), result("x", blind=True)])
    assert found.ended == ["d (stopped)"]
    assert found.wrong == ["w (error 1)"]
    assert found.differing == ["b (3, the list says 2)"]
    assert found.misreported == ["w (3 reported, 2 ran)"]
    assert (found.beyond, found.blind, [text[0] for text in found.unjudged]) == (["w (1 ATTNC-SCORE-OP)"], ["x"], ["u"])
    assert found.any and not complaints([result("a"), result("x", blind=True)]).any


def test_positions_left_as_they_were() -> None:
    dense = (Left("ATTNC-DENSE-SIDE", "bias is read for every query and key"),)
    found = complaints([
        *(result("r", rotations=2, ropes=4), result("s", rotations=2)),
        *(result("t", relative=True), result("u", relative=True, downgrades=dense), result("v", downgrades=dense)),
    ])  # fmt: skip
    assert (found.unrotated, found.dense) == (["s"], ["u"])


def test_the_record_holds_no_path_of_this_machine() -> None:
    text = json.dumps(record(RESULTS))
    assert str(Path(__file__).parents[2]) not in text
    assert json.loads(text)["total"] == {
        "models": 4,
        "sites": 12,
        "fused": 3,
        "left": {"STOPPED": 5, "ATTNC-SCORE-OP": 3, "ATTNC-LAYOUT": 1},
    }


def test_the_picture_is_well_formed() -> None:
    import xml.etree.ElementTree as ET

    words = [element.text for element in ET.fromstring(draw(total(RESULTS), by_family(RESULTS))).iter()]
    assert "25%  (3 of 12)" in words and "25%  (104 of 408)" in words and "77%  (57 of 74)" in words
