"""Steps with a past in a few lines: what is proved of them, against their numbers, and what is refused."""

from __future__ import annotations

import pytest
import torch

from attnc.compiler.derive.analysis import analyse
from attnc.compiler.derive.past.axes import PastAxes
from attnc.compiler.derive.past.check import Proved, prove
from attnc.compiler.derive.past.empty import without_past
from attnc.compiler.derive.refusal import NotDerivable
from attnc.compiler.interpreter import Interpreter
from attnc.ir import parse_graph, verify
from attnc.ir.graph import Graph
from attnc.ir.types import size

B, P, S, PLACES = 2, 5, 3, 16
GROWING = {
    "past": "%past_0: f32[B, 1, P, 8]",
    "number": "%at: i64[S] = aten.arange.start(%p, %n)",
    "place": "%e: f32[S, 8] = aten.embedding.default(%places, %at)",
    "row": "%x: f32[B, S, 8] = aten.add.Tensor(%t, %e)",
    "new": "%k: f32[B, 1, S, 8] = aten.unsqueeze.default(%x, 1)",
    "join": "%all: f32[B, 1, P + S, 8] = aten.cat.default([%past_0, %k], 2)",
    "keys": "%all",
    "read": "%seen: f32[B, 1, P + S, 8] = aten.alias.default(%all)",
    "mask": "k <= q + P",
    "score": "qk * 0.5",
    "sides": "",
    "present": "%all",
}
"""The parts of a step whose keys and values are one stream."""
FIXED = {
    **GROWING,
    "past": f"%past_0: f32[B, 1, {PLACES}, 8]",
    "join": f"%all: f32[B, 1, {PLACES}, 8] = aten.index_copy.default(%past_0, 2, %at, %k)",
    "read": f"%seen: f32[B, 1, {PLACES}, 8] = aten.alias.default(%all)",
}
"""The same with a buffer."""
CUT = "%cut: f32[B, 1, S, 8] = aten.slice.Tensor(%past_0, 2, %p, %n)\n"
COPIED = "%put: f32[B, 1, S, 8] = aten.copy.default(%cut, %k)\n"
TURNED = "%turned: f32[B, 1, P + S, 8] = aten.flip.default(%all, [2])"


def step(**parts: str) -> Graph:
    """A step of these parts."""
    return parse_graph(
        f"""
graph @step(%tokens: i64[B, S], {parts["past"]}, %earlier: i64[P], %words: f32[9, 8], %places: f32[{PLACES}, 8])
  sizes(B in [2, 8], P in [2, 12], S in [2, 4]) {{
  %p: int<P> = aten.sym_size.int(%earlier, 0)
  %s: int<S> = aten.sym_size.int(%tokens, 1)
  %n: int<P + S> = py.add(%p, %s)
  %t: f32[B, S, 8] = aten.embedding.default(%words, %tokens)
  {parts["number"]}
  {parts["place"]}
  {parts["row"]}
  {parts["new"]}
  {parts["join"]}
  {parts["read"]}
  %o: f32[B, 1, S, 8] = attn.attention(%k, %seen, %seen, [{parts["sides"]}], [%p]) {{
    q = [b, h, q, d], k = [b, h, k, d], v = [b, h, k, e], out = [b, h, q, e]
    sizes = [P]
    qk = f32
    score = where({parts["mask"]}, {parts["score"]}, -inf)
    visible = {parts["score"]}
    mask = {parts["mask"]}
    fill = minus_inf
    softmax = plain f32
    out_dtype = f32
  }}
  %y: f32[B, S, 8] = aten.squeeze.dim(%o, 1)
  return %y, {parts["present"]}
}}
"""
    )


def proved(graph: Graph) -> Proved:
    named = {value.name: value for value in graph.inputs}
    axes = PastAxes(size("B"), size("S"), None, None, {}, size("P"))
    return prove(graph, axes, named["tokens"], {"words", "places"}, [named["past_0"]])


ACCEPTED: dict[str, dict[str, str]] = {
    "a past": GROWING,
    "positions by adding": {
        **GROWING,
        "number": "%z: i64[S] = aten.arange.default(%s)\n%at: i64[S] = aten.add.Tensor(%z, %p)",
    },
    "positions by a slice": {
        **GROWING,
        "number": "%z: i64[P + S] = aten.arange.default(%n)\n%at: i64[S] = aten.slice.Tensor(%z, 0, %p, %n)",
    },
    "rows of the table by a slice": {**GROWING, "place": "%e: f32[S, 8] = aten.slice.Tensor(%places, 0, %p, %n)"},
    "a window": {**GROWING, "mask": "(k <= q + P) & (k > q + P - 3)"},
    "a bias by distance": {**GROWING, "score": "qk * 0.5 + f32(k - q - P) * 0.25"},
    "a bias by key": {
        **GROWING,
        "score": "qk * 0.5 + t0[k, 0]",
        "read": f"{GROWING['read']}\n%b: f32[P + S, 8] = aten.slice.Tensor(%places, 0, 0, %n)",
        "sides": "%b",
    },
    "a bias by query": {**GROWING, "score": "qk * 0.5 + t0[q, 1]", "sides": "%e"},
    "a past in other dimensions": {
        **GROWING,
        "past": "%past_0: f32[B, P, 1, 8]",
        "join": "%first: f32[B, 1, P, 8] = aten.transpose.int(%past_0, 1, 2)\n"
        "%all: f32[B, 1, P + S, 8] = aten.cat.default([%first, %k], 2)\n"
        "%back: f32[B, P + S, 1, 8] = aten.permute.default(%all, [0, 2, 1, 3])",
        "present": "%back",
    },
    "keys scaled when they are read": {
        **GROWING,
        "read": "%z: i64[P + S] = aten.arange.default(%n)\n%w: f32[P + S, 8] = aten.embedding.default(%places, %z)\n"
        "%seen: f32[B, 1, P + S, 8] = aten.mul.Tensor(%all, %w)",
    },
    "a buffer": FIXED,
    "a buffer by indices": {
        **FIXED,
        "join": f"%all: f32[B, 1, {PLACES}, 8] = aten.index_put.default(%past_0, [None, None, %at], %k)",
    },
    "a buffer by a slice": {
        **FIXED,
        "join": f"{CUT}{COPIED}%all: f32[B, 1, {PLACES}, 8] = aten.slice_scatter.default(%past_0, %put, 2, %p, %n)",
    },
    "a buffer read up to the last token": {
        **FIXED,
        "read": "%seen: f32[B, 1, P + S, 8] = aten.slice.Tensor(%all, 2, 0, %n)",
    },
    "a buffer and a window": {**FIXED, "mask": "(k <= q + P) & (k > q + P - 3)"},
    "a buffer for two heads": {
        **FIXED,
        "read": f"%seen: f32[B, 1, {PLACES}, 8] = aten.expand.default(%all, [-1, 1, {PLACES}, 8])",
    },
}

REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "new rows first": (
        {**GROWING, "join": "%all: f32[B, 1, P + S, 8] = aten.cat.default([%k, %past_0], 2)"},
        "come first",
    ),
    "positions from 0": ({**GROWING, "number": "%at: i64[S] = aten.arange.default(%s)"}, "total length"),
    "positions backward": ({**GROWING, "number": "%at: i64[S] = aten.arange.start_step(%n, %p, -1)"}, "total length"),
    "the number of new tokens": (
        {
            **GROWING,
            "row": "%x_0: f32[B, S, 8] = aten.add.Tensor(%t, %e)\n%x: f32[B, S, 8] = aten.mul.Tensor(%x_0, %s)",
        },
        "",
    ),
    "a mask off by the past": ({**GROWING, "mask": "k <= q"}, "mask"),
    "a mask off by the new": ({**GROWING, "mask": "k <= q + P + P"}, "mask"),
    "a score by place": ({**GROWING, "score": "qk * 0.5 + f32(k - q) * 0.25"}, "scores"),
    "a bias by place": ({**GROWING, "score": "qk * 0.5 + t0[q, 1]", "sides": "%places"}, "scores"),
    "the past rolled": (
        {**GROWING, "read": f"{GROWING['read']}\n{TURNED}", "present": "%turned"},
        "given back",
    ),
    "the new rows only": ({**GROWING, "present": "%past_0"}, "given back"),
    "the past doubled first": (
        {
            **GROWING,
            "join": "%twice: f32[B, 1, P, 8] = aten.mul.Tensor(%past_0, 2.0)\n"
            "%all: f32[B, 1, P + S, 8] = aten.cat.default([%twice, %k], 2)",
        },
        "computed with",
    ),
    "a sum of the new rows": (
        {
            **GROWING,
            "row": "%x_0: f32[B, S, 8] = aten.add.Tensor(%t, %e)\n%x: f32[B, S, 8] = aten.cumsum.default(%x_0, 1)",
        },
        "over tokens",
    ),
    "a buffer written from 0": (
        {
            **FIXED,
            "join": "%z: i64[S] = aten.arange.default(%s)\n"
            f"%all: f32[B, 1, {PLACES}, 8] = aten.index_copy.default(%past_0, 2, %z, %k)",
        },
        "places",
    ),
    "a buffer written as a ring": (
        {
            **FIXED,
            "join": "%z: i64[S] = aten.remainder.Scalar(%at, 4)\n"
            f"%all: f32[B, 1, {PLACES}, 8] = aten.index_copy.default(%past_0, 2, %z, %k)",
        },
        "places",
    ),
    "a buffer added to": (
        {
            **FIXED,
            "join": f"%all: f32[B, 1, {PLACES}, 8] = aten.index_put.default(%past_0, [None, None, %at], %k, True)",
        },
        "added to",
    ),
    "a slice one place too early": (
        {
            **FIXED,
            "join": "%lo: int<P - 1> = py.sub(%p, 1)\n%hi: int<P + S - 1> = py.sub(%n, 1)\n"
            f"%all: f32[B, 1, {PLACES}, 8] = aten.slice_scatter.default(%past_0, %k, 2, %lo, %hi)",
        },
        "not at the places",
    ),
    "a buffer read before it is written": (
        {**FIXED, "read": f"%seen: f32[B, 1, {PLACES}, 8] = aten.alias.default(%past_0)"},
        "",
    ),
    "an empty place is seen": ({**FIXED, "mask": f"(k <= q + P) | (k == {PLACES - 1})"}, "visible"),
    "a buffer summed": (
        {
            **FIXED,
            "read": f"%m: f32[B, 1, 1, 8] = aten.mean.dim(%all, [2], True)\n"
            f"%seen: f32[B, 1, {PLACES}, 8] = aten.sub.Tensor(%all, %m)",
        },
        "outside attention",
    ),
}


@pytest.mark.parametrize("parts", ACCEPTED.values(), ids=ACCEPTED)
def test_a_step_is_the_end_of_a_whole_sequence(parts: dict[str, str]) -> None:
    graph = step(**parts)
    verify(graph)
    whole = without_past(proved(graph), "input_ids", PLACES)
    verify(whole)
    assert len(analyse(whole, "input_ids", {"words", "places"}).sites) == 1
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 9, (B, P + S), generator=generator)
    weights = {n: torch.randn(k, 8, generator=generator) for n, k in (("words", 9), ("places", PLACES))}
    rows, held = [], past(graph, weights, ids[:, :0])
    for begin, end in ((0, 2), (2, P), (P, P + S)):  # a first step on an empty past, then two more
        out, held = called(graph, weights, ids[:, begin:end], held, begin)
        rows.append(out)
    given = {"input_ids": ids, **weights}
    (found,) = Interpreter(whole).run([given[value.name] for value in whole.inputs])
    torch.testing.assert_close(torch.cat(rows, 1), found, rtol=1e-5, atol=1e-5)


def past(graph: Graph, weights: dict[str, torch.Tensor], none: torch.Tensor) -> torch.Tensor:
    """An empty past."""
    kind = next(value for value in graph.inputs if value.name == "past_0").type
    lengths = {"B": B, "P": 0}
    return torch.zeros([lengths.get(str(n), n) for n in kind.shape])  # type: ignore[union-attr, arg-type, misc]


def called(
    graph: Graph, weights: dict[str, torch.Tensor], ids: torch.Tensor, held: torch.Tensor, before: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Result and past of one step."""
    given = {"tokens": ids, "past_0": held, "earlier": torch.zeros(before, dtype=torch.int64), **weights}
    out, after = Interpreter(graph).run([given[value.name] for value in graph.inputs])
    return out, after


@pytest.mark.parametrize(("parts", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_step_that_is_no_end_of_a_sequence(parts: dict[str, str], reason: str) -> None:
    graph = step(**parts)
    verify(graph)
    with pytest.raises(NotDerivable) as caught:
        proved(graph)
    assert reason in caught.value.reason, caught.value
