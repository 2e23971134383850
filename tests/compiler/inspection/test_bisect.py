"""A wrong pass put into the pipeline is named, with its first wrong op; a right pipeline moves nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch

from attnc.compiler.inspection.adversarial import input_sets
from attnc.compiler.inspection.bisect import Finding, bisect_passes, describe
from attnc.compiler.passes.base import Context, Pass
from attnc.compiler.passes.pipeline import PIPELINE
from attnc.ir import Graph, Value

Model = Callable[..., str]
Parsed = Callable[[str], Graph]


CHOICE = next(i for i, known in enumerate(PIPELINE) if known.name == "choose-strategy")


@dataclass(frozen=True)
class Wrong:
    """Changes the graph by ``edit``, which is not what a pass may do."""

    edit: Callable[[Graph], None] = field(repr=False)
    name: ClassVar[str] = "wrong"

    def run(self, graph: Graph, context: Context) -> bool:
        self.edit(graph)
        return True


def before_choice(step: Pass) -> tuple[Pass, ...]:
    """The pipeline with ``step`` put where every attention is fused and nothing is planned yet."""
    return (*PIPELINE[:CHOICE], step, *PIPELINE[CHOICE:])


def inputs(length: int = 7, seed: int = 0) -> list[Any]:
    torch.manual_seed(seed)
    return [torch.randn(2, 4, length, 8), torch.randn(2, 4, length, 8), length]


def found(parsed: Parsed, text: str, passes: tuple[Pass, ...] = PIPELINE, **options: Any) -> Finding:
    return bisect_passes(parsed(text), {"as given": inputs()}, passes=passes, **options)


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("window", [0, 3])
def test_the_pipeline_moves_nothing(wide: bool, window: int, model: Model, parsed: Parsed) -> None:
    finding = found(parsed, model(2, window=window), wide=wide)
    assert finding.move is None and finding.left_out == []
    assert list(finding.lines()) == [f"nothing moved: {len(PIPELINE)} passes, 1 sets of inputs"]


def test_a_changed_constant_is_found_at_its_op(model: Model, parsed: Parsed) -> None:
    """tanh of the second layer scaled: the first layer, equal to it, must not be blamed."""

    def scale(graph: Graph) -> None:
        op = next(op for op in graph.ops if op.result.name == "l1y")
        new = graph.create(
            "aten.mul.Tensor", (op.result, 1.001), (op.result.type,), after=op, loc=op.loc, names=("new",)
        )
        graph.replace_uses(op.result, new.result)
        new.set_args((op.result, 1.001))

    move = found(parsed, model(2), before_choice(Wrong(scale))).move
    assert move is not None
    assert (move.step, move.place) == ("wrong", CHOICE + 1)
    assert move.op == "%new: f32[2, 4, S, 8] = aten.mul.Tensor(%l1y, 1.001)"
    assert str(move.loc) == "model.py:11" and move.loc.module == "layers.1"
    assert "differs by 0.001 of its largest magnitude" in move.detail


def test_a_wrong_attention_is_found_though_its_name_is_new(model: Model, parsed: Parsed) -> None:
    """Fusing and erring in one pass: the op that took the softmax's place is blamed, not its first reader."""
    fuse = next(step for step in PIPELINE if step.name == "fuse-attention")

    class Fused:
        name: ClassVar[str] = "fuse-attention"

        def run(self, graph: Graph, context: Context) -> bool:
            changed = fuse.run(graph, context)
            op = [op for op in graph.ops if op.name == "attn.attention"][1]
            q, _, v, *rest = op.args
            op.set_args((q, v, v, *rest))  # the values for keys
            return changed

    passes = tuple(Fused() if step is fuse else step for step in PIPELINE)
    move = found(parsed, model(3), passes).move
    assert move is not None and move.step == "fuse-attention"
    assert move.op.startswith("%attention_1: f32[2, 4, S, 8] = attn.attention(%l0y, %v, %v")
    assert move.loc.module == "layers.1" and "; output 0 differs by" in move.detail


def test_the_index_is_where_the_numbers_part(parsed: Parsed) -> None:
    text = """
    graph @g(%x: f32[3, 5]) {
      %y: f32[3, 5] = aten.neg.default(%x)
      %i: i64[] = aten.sum.default(%x)
      return %y
    }
    """.replace("%i: i64[] = aten.sum.default(%x)", "%s: f32[] = aten.sum.default(%x)")
    other = torch.zeros(3, 5)
    other[2, 3] = 0.5

    def add(graph: Graph) -> None:
        graph.constants["bump"] = other
        made = graph.create("ir.constant", (), (graph.inputs[0].type,), attrs={"name": "bump"}, before=graph.ops[0])
        graph.ops[1].set_args((_added(graph, graph.inputs[0], made.result),))

    move = bisect_passes(parsed(text), {"x": [torch.ones(3, 5)]}, passes=(Wrong(add),)).move
    assert move is not None and "most at [2, 3]: was 1, is 1.5" in move.detail
    assert move.op == "%add: f32[3, 5] = aten.add.Tensor(%x, %constant)"


def _added(graph: Graph, x: Value, y: Value) -> Value:
    return graph.create("aten.add.Tensor", (x, y), (x.type,), before=graph.ops[1]).result


def test_a_pass_whose_graph_cannot_run(model: Model, parsed: Parsed) -> None:
    def breaks(graph: Graph) -> None:
        op = next(op for op in graph.ops if op.result.name == "l0y")
        op.name = "aten.view.default"
        op.set_args((op.args[0], (3,)))

    move = found(parsed, model(2), before_choice(Wrong(breaks))).move
    assert move is not None and move.op.startswith("%l0y: f32[2, 4, S, 8] = aten.view.default(%attention, [3])")
    assert move.detail.startswith("raises RuntimeError: shape '[3]' is invalid")


def test_rounding_is_passed_over_and_more_is_not(parsed: Parsed) -> None:
    """As written, one part in a million is rounding; widened, it is a change of meaning."""
    text = "graph @g(%x: f32[4]) {\n %y: f32[4] = aten.mul.Tensor(%x, 3.0)\n return %y\n}"

    def nudge(factor: float) -> tuple[Pass, ...]:
        def edit(graph: Graph) -> None:
            graph.ops[0].set_args((graph.inputs[0], 3.0 * factor))

        return (Wrong(edit),)

    sets = {"x": [torch.rand(4) + 1]}
    moves = [
        bisect_passes(parsed(text), sets, passes=nudge(factor), wide=wide).move is not None
        for factor in (1 + 1e-6, 1.01)
        for wide in (True, False)
    ]
    assert moves == [True, False, True, True]


def test_inputs_the_model_does_not_take_are_left_out(model: Model, parsed: Parsed) -> None:
    sets = {"short": inputs()[:2], "nan": [x * math.nan if isinstance(x, torch.Tensor) else x for x in inputs()]}
    finding = bisect_passes(parsed(model(1)), {**sets, "as given": inputs()})
    assert finding.sets == ["as given"] and finding.move is None
    assert finding.left_out[0].startswith("short: ValueError: graph @g takes 3 inputs, got 2")
    assert finding.left_out[1] == "nan: every result of the model itself is NaN or inf"


KEYS = """
graph @keys(%q: f32[2, 5, 8], %k: f32[2, 6, 8], %v: f32[2, 6, 8], %attention_mask: i64[2, 6]) {
  %t: f32[2, 8, 6] strides(48, 1, 8) = aten.transpose.int(%k, 1, 2)
  %s: f32[2, 5, 6] = aten.matmul.default(%q, %t)
  %e: b1[2, 6] = aten.eq.Scalar(%attention_mask, 0)
  %h: b1[2, 1, 6] = aten.unsqueeze.default(%e, 1)
  %m: f32[2, 5, 6] = aten.masked_fill.Scalar(%s, %h, -inf)
  %p: f32[2, 5, 6] = aten.softmax.int(%m, -1)
  %o: f32[2, 5, 8] = aten.matmul.default(%p, %v)
  return %o
}
"""


def test_only_poison_shows_a_read_of_hidden_keys(parsed: Parsed) -> None:
    """Values plus 0 times every key: nothing moves until a hidden key is NaN."""

    def leak(graph: Graph) -> None:
        attention = next(op for op in graph.ops if op.name == "attn.attention")
        q, k, v, *rest = attention.args
        assert isinstance(k, Value) and isinstance(v, Value)
        mean = graph.create("aten.mean.dim", (k, (0, 1), True), (v.type,), before=attention)
        zero = graph.create("aten.mul.Tensor", (mean.result, 0.0), (v.type,), before=attention)
        added = graph.create("aten.add.Tensor", (v, zero.result), (v.type,), before=attention)
        attention.set_args((q, k, added.result, *rest))

    for adversarial in (False, True):
        graph = parsed(KEYS)
        given = [torch.randn(2, 5, 8), torch.randn(2, 6, 8), torch.randn(2, 6, 8), torch.ones(2, 6, dtype=torch.int64)]
        sets = {"as given": given}
        if adversarial:
            sets |= input_sets(graph, given, {v.name: v.name for v in graph.inputs})
        finding = bisect_passes(graph, sets, passes=before_choice(Wrong(leak)))
        assert (finding.move is None) is not adversarial
    assert finding.move is not None
    assert finding.move.inputs == "attention_mask: left padding in a row, NaN behind it in k"
    assert finding.move.op.startswith("%add: f32[2, 6, 8] = aten.add.Tensor(%v, ")


PADDED = """
graph @padded(%x: f32[B, S, 8], %attention_mask: i64[B, S], %n: int<S>) sizes(B in [1, inf], S in [1, inf]) {
  %t: f32[B, 8, S] strides(8*S, 1, 8) = aten.transpose.int(%x, 1, 2)
  %s: f32[B, S, S] = aten.matmul.default(%x, %t)
  %e: b1[B, S] = aten.ne.Scalar(%attention_mask, 0)
  %u: b1[B, 1, S] = aten.unsqueeze.default(%e, 1)
  %h: b1[B, 1, S] = aten.logical_not.default(%u)
  %m: f32[B, S, S] = aten.masked_fill.Scalar(%s, %h, FILL)
  %p: f32[B, S, S] = aten.softmax.int(%m, -1)
  %o: f32[B, S, 8] = aten.matmul.default(%p, %x)
  %y: f32[B, S, 8] = aten.tanh.default(%o)
  return %y
}
"""


def padded(parsed: Parsed, fill: str, passes: tuple[Pass, ...], *, adversarial: bool) -> Finding:
    graph = parsed(PADDED.replace("FILL", fill))
    given = [torch.randn(2, 6, 8), torch.ones(2, 6, dtype=torch.int64), 6]
    sets = {"as given": given}
    if adversarial:
        sets |= input_sets(graph, given, {v.name: v.name for v in graph.inputs})
    return bisect_passes(graph, sets, passes=passes)


@pytest.mark.parametrize("fill", ["-inf", "-3.4028234663852886e+38"])
def test_adversarial_inputs_move_nothing_in_a_right_pipeline(fill: str, parsed: Parsed) -> None:
    finding = padded(parsed, fill, PIPELINE, adversarial=True)
    assert finding.move is None, list(finding.lines())
    assert len(finding.sets) >= 8


@pytest.mark.parametrize("fill", ["-3.4028234663852886e+38"])
def test_only_dead_rows_show_a_forgotten_fill(fill: str, parsed: Parsed) -> None:
    """Rows without a visible key set to zero: right for every ordinary input, found by all padding."""

    def zero(graph: Graph) -> None:
        import dataclasses

        from attnc.ir import Fill

        op = next(op for op in graph.ops if op.name == "attn.attention")
        op.attrs["spec"] = dataclasses.replace(op.attrs["spec"], fill=Fill(None))

    passes = before_choice(Wrong(zero))
    assert padded(parsed, fill, passes, adversarial=False).move is None
    move = padded(parsed, fill, passes, adversarial=True).move
    assert move is not None and move.inputs == "attention_mask: a row of padding" and move.step == "wrong"
    assert move.op.startswith("%attention: f32[B, S, 8] = attn.attention(")


def test_differences_in_words() -> None:
    assert describe(torch.ones(2, 3), torch.ones(3, 2)) == "was [3, 2], is [2, 3]"
    reference = torch.tensor([1.0, math.nan, -4.0])
    assert describe(torch.tensor([1.0, 9.0, -3.0]), reference) == (
        "differs by 0.25 of its largest magnitude, most at [2]: was -4, is -3"
    )
    assert describe(torch.tensor([math.nan, 9.0, -3.0]), reference).endswith("most at [0]: was 1, is nan")
    assert describe(torch.tensor([True, False]), torch.tensor([True, True])) == "differs, most at [1]: was 1, is 0"
