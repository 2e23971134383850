"""Inputs that hurt: what each set holds, and what it leaves as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from attnc.compiler.inspection.adversarial import input_sets, learn_sizes, resized
from attnc.ir import Graph

Parsed = Callable[[str], Graph]

TEXT = """
graph @g(%p_table: f32[11, 8], %ids: i64[B, S], %attention_mask: KIND[B, S], %x: f32[B, S, 4], %bias: f32[2*S],
    %n: int<B*S>) sizes(B in [1, inf], S in [LO, HI]) {
  %e: f32[B, S, 8] = aten.embedding.default(%p_table, %ids)
  return %e
}
"""


def graph(parsed: Parsed, kind: str = "i64", lo: int = 2, hi: str = "inf") -> Graph:
    return parsed(TEXT.replace("KIND", kind).replace("LO", str(lo)).replace("HI", hi))


def inputs(dtype: torch.dtype = torch.int64) -> list[Any]:
    ids = torch.tensor([[1, 2, 3, 4, 5, 6], [0, 2, 4, 6, 8, 9]])
    return [torch.ones(11, 8), ids, torch.ones(2, 6, dtype=dtype), torch.ones(2, 6, 4), torch.arange(12.0), 12]


NAMES = {"ids": "input_ids", "attention_mask": "attention_mask", "x": "x", "bias": "bias", "n": "n"}


def test_sizes_are_learned_and_changed(parsed: Parsed) -> None:
    g = graph(parsed)
    assert learn_sizes(g, inputs()) == {"B": 2, "S": 6}
    table, ids, mask, x, bias, n = resized(g, inputs(), {"B": 3, "S": 7})
    assert [list(t.shape) for t in (table, ids, mask, x, bias)] == [[11, 8], [3, 7], [3, 7], [3, 7, 4], [14]]
    assert n == 21
    assert ids[2].tolist() == [1, 2, 3, 4, 5, 6, 1]


@pytest.mark.parametrize(
    ("lo", "hi", "lengths"),
    [
        (1, "inf", {"S = 1": 1, "S = 3": 3}),
        (2, "inf", {"S = 2": 2, "S = 3": 3}),
        (4, "5", {"S = 4": 4, "S = 5": 5}),
        (6, "6", {}),
    ],
)
def test_lengths_are_least_and_odd_within_bounds(lo: int, hi: str, lengths: dict[str, int], parsed: Parsed) -> None:
    sets = input_sets(graph(parsed, lo=lo, hi=hi), inputs(), NAMES)
    assert {name: given[1].shape[1] for name, given in sets.items() if name.startswith("S = ")} == lengths
    assert sets["B = 1"][1].shape == (1, 6) and sets[f"B = 1, S = {lo}"][3].shape == (1, lo, 4)


def test_masks_hide_what_they_say(parsed: Parsed) -> None:
    sets = input_sets(graph(parsed), inputs(), NAMES)
    masks = {name.removeprefix("attention_mask: "): given[2].tolist() for name, given in sets.items() if "mask" in name}
    assert masks["left padding"] == [[0, 0, 0, 1, 1, 1]] * 2
    assert masks["right padding"] == [[1, 1, 1, 0, 0, 0]] * 2
    assert masks["left padding in a row"] == [[0, 0, 0, 1, 1, 1], [1] * 6]
    assert masks["right padding in a row"] == [[1, 1, 1, 0, 0, 0], [1] * 6]
    assert masks["a row of padding"] == [[0] * 6, [1] * 6]
    assert masks["all padding"] == [[0] * 6] * 2 and masks["no padding"] == [[1] * 6] * 2


def test_poison_stands_exactly_behind_the_mask(parsed: Parsed) -> None:
    given = inputs()
    sets = input_sets(graph(parsed), given, NAMES)
    x = sets["attention_mask: left padding in a row, NaN behind it in x"][3]
    assert torch.isnan(x[0, :3]).all() and (x[0, 3:] == 1).all() and (x[1] == 1).all()
    table, ids, mask, *_ = sets["attention_mask: right padding in a row, inf behind it in the embedding"]
    poisoned = torch.isinf(table).all(1)
    assert poisoned.sum() == 1 and torch.equal(poisoned[ids], mask == 0)
    assert torch.equal(ids[mask != 0], given[1][mask != 0])
    assert torch.isfinite(given[0]).all() and torch.isfinite(given[3]).all()  # the given tensors stay clean


def test_a_boolean_mask_may_mean_either(parsed: Parsed) -> None:
    sets = input_sets(graph(parsed, "b1"), inputs(torch.bool), NAMES)
    assert sets["attention_mask: all padding"][2].dtype is torch.bool
    x = sets["attention_mask: left padding in a row, NaN behind it in x, where True"][3]
    assert torch.isnan(x[0, 3:]).all() and torch.isnan(x[1]).all() and (x[0, :3] == 1).all()
    assert torch.isnan(sets["attention_mask: left padding in a row, NaN behind it in x"][3][0, :3]).all()


def test_the_last_position(parsed: Parsed) -> None:
    x = input_sets(graph(parsed), inputs(), NAMES)["inf in the last position of x"][3]
    assert torch.isinf(x[:, -1]).all() and (x[:, :-1] == 1).all()


def test_weights_are_no_data(parsed: Parsed) -> None:
    """A weight of three dimensions, or one called a mask, stays as it is."""
    g = parsed("graph @g(%p_mask: i64[2, 6], %p_w: f32[2, 6, 4], %y: f32[3]) {\n return %y\n}")
    given = [torch.ones(2, 6, dtype=torch.int64), torch.ones(2, 6, 4), torch.ones(3)]
    assert input_sets(g, given, {"y": "y"}) == {}
