"""The zoo harness: the ground-truth rule, forked jobs, resuming, what is attributed to what, sums, judging."""

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
import torch
from torch import Tensor, nn

from attnc.compiler.report import Note, Report, Site
from benchmarks.coverage.__main__ import main
from benchmarks.coverage.attribution import attribute
from benchmarks.coverage.compare import judge_all, run, run_skewed, run_wide
from benchmarks.coverage.fork import Ended, run_forked
from benchmarks.coverage.measure import measure_model
from benchmarks.coverage.picture import draw
from benchmarks.coverage.positions import Positions, count_positions
from benchmarks.coverage.record import record
from benchmarks.coverage.results import Left, Listed, Result, listed, lost
from benchmarks.coverage.runner import State, run_zoo, shard
from benchmarks.coverage.tally import by_family, complaints, obstacles, subject, total
from benchmarks.coverage.truth import Truth, count_sites
from benchmarks.coverage.watch import Break, Graph

# -- the list ----------------------------------------------------------------------------------------------------------


def test_the_list_only_grows() -> None:
    """Raise these figures with the list; never lower them."""
    models = listed()
    assert len(models) >= 361
    assert sum(model.sites for model in models.values()) >= 947
    assert all(model.sites > 0 for model in models.values())
    assert list(models) == sorted(models)


# -- the ground-truth rule ---------------------------------------------------------------------------------------------


class Block(nn.Module):
    """One attention and one router; the ways they are written are the tests'."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.gate = (nn.Linear(8, 8) for _ in range(4))
        self.router = nn.Linear(8, 3)

    def scores(self, x: Tensor) -> Tensor:
        return self.q(x) @ self.k(x).transpose(-2, -1)

    def forward(self, x: Tensor) -> Tensor:
        attended = torch.softmax(self.scores(x) / 8**0.5, -1) @ self.v(x)
        expert = torch.softmax(self.router(attended.flatten(0, 1)), -1)
        return attended * expert.sum(-1).view(2, 5, 1)


class Added(Block):
    """The scores go through a mask that is written into a view of them."""

    def forward(self, x: Tensor) -> Tensor:
        scores = self.scores(x)
        assembled = torch.zeros_like(scores)
        assembled[:, :, 1:] = scores[:, :, 1:]
        return torch.softmax(assembled, -1) @ self.v(x)


class Dropped(Block):
    """Of two attentions one goes nowhere."""

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.softmax(self.scores(x), -1)
        torch.softmax(2 * self.scores(x), -1) @ self.v(x)
        return weights @ self.v(x)


class Gate(Block):
    """A softmax between two linear layers."""

    def forward(self, x: Tensor) -> Tensor:
        return self.v(torch.softmax(self.gate(x), -1))


class Pooling(Block):
    """The weights come from a linear layer, but meet a product."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.gate(x)[..., :1].transpose(-2, -1), -1) @ self.v(x)


class Unread(Block):
    """The scores are a product, but the weights never meet one."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.scores(x), -1).exp()


class Native(Block):
    def forward(self, x: Tensor) -> Tensor:
        y = x.unsqueeze(1)
        return super().forward(nn.functional.scaled_dot_product_attention(y, y, y).squeeze(1))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Block, Truth(sites=1, dead=0, native=0, others=1)),
        (Added, Truth(sites=1, dead=0, native=0, others=0)),
        (Native, Truth(sites=1, dead=0, native=1, others=1)),
        (Dropped, Truth(sites=2, dead=1, native=0, others=0)),
        (Gate, Truth(sites=0, dead=0, native=0, others=1)),
        (Pooling, Truth(sites=0, dead=0, native=0, others=1)),
        (Unread, Truth(sites=0, dead=0, native=0, others=1)),
    ],
)
def test_ground_truth(kind: type[Block], expected: Truth) -> None:
    assert count_sites(kind(), {"x": torch.randn(2, 5, 8)}) == expected


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


# -- judging and measuring ---------------------------------------------------------------------------------------------


class Noisy(Block):
    """Draws random numbers, and returns a number, a flag and nothing."""

    def forward(self, x: Tensor) -> Any:
        picked = torch.multinomial(torch.ones(2, 5).float(), 3)
        noise = torch.rand(2, 5, 8) + 0 * torch.tensor(torch.finfo(x.dtype).max)
        return {"y": super().forward(x + noise).gather(1, picked[..., None].expand(-1, -1, 8)), "picked": picked}, None


def test_judging() -> None:
    model, inputs = Noisy().eval(), {"x": torch.randn(2, 5, 8)}
    eager, reference = run(model, inputs), run_wide(model, inputs)
    assert reference[0].dtype == torch.float64
    assert judge_all(run(model, inputs), eager, reference).right is True
    assert judge_all(run_skewed(model, inputs), eager, reference).right is False
    y, picked = eager
    assert judge_all([y * (1 + 1e-4), picked], eager, reference).right is False
    assert judge_all([torch.where(y == y.max(), torch.nan, y), picked], eager, reference).right is False
    assert judge_all([y, picked.flip(-1)], eager, reference).right is False
    assert judge_all([y], eager, reference).right is False
    assert judge_all([picked], [picked], [picked]).right is None


class Experts(nn.Module):
    """Rows 0 to 1 go to the first expert, none to the second, 2 to 5 to the third, the last to none."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(3, 16, 16))

    def forward(self, x: Tensor) -> Tensor:
        return torch._grouped_mm(x, self.weights, offs=torch.tensor([2, 2, 6], dtype=torch.int32))


def test_groups_of_rows_in_float64() -> None:
    model, x = Experts(), torch.randn(7, 16)
    (wide,) = run_wide(model, {"x": x})
    weights = model.weights.detach().double()
    expected = torch.cat([x[:2].double() @ weights[0], x[2:6].double() @ weights[2]])
    torch.testing.assert_close(wide[:6], expected)
    torch.testing.assert_close(run(model, {"x": x})[0][:6].double(), expected, rtol=1e-5, atol=1e-5)


class Two(nn.Module):
    """One layer of code used twice behind a graph break, so that one graph serves both."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            torch._dynamo.graph_break()
            x = layer(x)
        return x


@pytest.mark.slow
def test_a_measured_module() -> None:
    torch.manual_seed(1)
    found = measure_model(Two().eval(), {"x": torch.randn(2, 5, 8)}, "two", "other", 2)
    assert (found.outcome, found.sites, found.fused, found.left, found.beyond) == ("measured", 2, 2, (), ())
    assert found.reported == found.ran == 2 and found.right and not found.blind
    assert "graph_break()" in found.breaks[0]
    assert not complaints([found]).any


def apply_rotary_pos_emb(x: Tensor) -> Tensor:
    return x.flip(-1)


class Rotary(nn.Module):
    """``RotaryEmbedding.forward`` makes tables; only their use counts."""

    def forward(self, x: Tensor) -> Tensor:
        return apply_rotary_pos_emb(x) + apply_rotary_pos_emb(x)


def test_positions_are_told_by_names() -> None:
    x = {"x": torch.randn(2, 8)}
    assert count_positions(Rotary(), x) == Positions(rotations=2)
    plain, biased = nn.Module(), nn.Module()
    plain.forward = biased.forward = lambda x: x  # type: ignore[method-assign]
    biased.register_buffer("relative_position_index", torch.zeros(2))
    assert count_positions(plain, x) == Positions()
    assert count_positions(biased, x) == Positions(relative=True)


# -- the zoo itself ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "bert", "led", "whisper", "clip", "swin", "deformable_detr", "vits"])
def test_a_model_of_the_zoo(name: str) -> None:
    """It is made as listed, the same each time, and its weights show what its attentions do."""
    zoo = pytest.importorskip("benchmarks.coverage.zoo")
    entry, again = zoo.build(name), zoo.build(name)
    assert (entry.family, count_sites(entry.model, entry.inputs).sites) == (listed()[name].family, listed()[name].sites)
    eager = run(entry.model, entry.inputs)
    assert all(map(torch.equal, eager, run(again.model, again.inputs)))
    reference = run_wide(entry.model, entry.inputs)
    assert judge_all(eager, eager, reference).right is True
    assert judge_all(run_skewed(entry.model, entry.inputs), eager, reference).right is False


@pytest.mark.slow
def test_shrinking_keeps_what_must_agree() -> None:
    shrink = pytest.importorskip("benchmarks.coverage.shrink")
    transformers = pytest.importorskip("transformers")
    gemma = shrink.shrunk(transformers.Gemma3TextConfig)
    assert (gemma.num_hidden_layers, gemma.layer_types) == (2, ["sliding_attention", "full_attention"])
    assert gemma.vocab_size == 128 and max(gemma.eos_token_id, gemma.bos_token_id, gemma.pad_token_id) < 128
    clip = shrink.shrunk(transformers.CLIPConfig)
    assert clip.text_config.hidden_size == clip.vision_config.hidden_size == 64
    with pytest.raises(Exception, match="layers"):
        shrink._made(transformers.BertConfig, {"num_hidden_layers": "layers"}, keep={})
