"""A refusal names the form that the program nearly was, the op and the line that block it, and an edit that helps.

Each case is a pair: the program that is refused, and the same program edited as the report says, which fuses.
"""

from __future__ import annotations

import html
import inspect
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnc.compiler.codes import CODES
from attnc.compiler.frontends.torch import import_graph
from attnc.compiler.fuse.edits import EDITS
from attnc.compiler.host.exported import capture_exported
from attnc.compiler.passes.base import Context
from attnc.compiler.passes.canonicalize import Canonicalize
from attnc.compiler.passes.distribute import Distribute
from attnc.compiler.passes.fuse_attention import FuseAttention
from attnc.compiler.report import Report, Site
from attnc.ir import parse_graph, print_graph, verify

B, H, S, D = 2, 4, 12, 16
INF = math.inf

Program = Callable[..., Any]


@dataclass(frozen=True)
class Near:
    """``says`` is part of the edit, ``form`` of the nearest form; the blocking op is on the line of ``refused``."""

    name: str
    code: str
    blocker: str
    says: str
    form: str
    refused: Program
    edited: Program
    more: tuple[Tensor, ...] = ()
    inputs: Callable[[], tuple[Tensor, ...]] | None = None


def qkv(*shape: int, heads: int = H, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    return tuple(torch.zeros(shape or (B, heads, S, D), dtype=dtype) for _ in "qkv")


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT * 0.25


def weights(q: Tensor, k: Tensor) -> Tensor:
    return scores(q, k).softmax(-1)


def attend(s: Tensor, v: Tensor) -> Tensor:
    return s.softmax(-1) @ v


def exps(q: Tensor, k: Tensor) -> Tensor:
    s = scores(q, k)
    return (s - s.amax(-1, keepdim=True)).exp()


def normalised(e: Tensor) -> Tensor:
    return e / e.sum(-1, keepdim=True)


def plus_one(s: Tensor) -> Tensor:
    m = s.amax(-1, keepdim=True)
    e = (s - m).exp()
    return e / (e.sum(-1, keepdim=True) + (-m).exp())


def hidden() -> Tensor:
    return torch.ones(S, S, dtype=torch.bool).triu(1)


USED, OP, WEIGHTS = "ATTNC-WEIGHTS-USED", "ATTNC-SCORE-OP", "ATTNC-WEIGHTS-OP"
FORM, CONTRACTION, LAYOUT = "ATTNC-SOFTMAX-FORM", "ATTNC-CONTRACTION", "ATTNC-LAYOUT"
CONDITION = "ATTNC-SCORE-CONDITION"
PLAIN = "softmax(qk * 0.25)·V, MHA"
CAUSAL = "softmax(qk * 0.25)·V, causal, MHA"
QK, SOFTMAX, PV = "Q·Kᵀ (test_nearest.py:", "softmax (test_nearest.py:", "P·V (test_nearest.py:"

# fmt: off
CASES = [
    # -- the weights ---------------------------------------------------------------------------------------------------
    Near("weights returned", USED, "softmax.int", "output_attentions=False", "causal, MHA",
         lambda q, k, v: (w := scores(q, k).masked_fill(hidden(), -INF).softmax(-1), w @ v),
         lambda q, k, v: scores(q, k).masked_fill(hidden(), -INF).softmax(-1) @ v),
    Near("weights averaged", USED, "mean.dim", "softmax(scores) once more", PLAIN,
         lambda q, k, v: ((w := weights(q, k)) @ v, w.mean(1)),
         lambda q, k, v: (weights(q, k) @ v, weights(q, k).mean(1))),
    Near("two values", USED, "matmul", "torch.cat((v1, v2), -1)", PLAIN,
         lambda q, k, v: ((w := weights(q, k)) @ v, w @ v.cos()),
         lambda q, k, v: (weights(q, k) @ torch.cat((v, v.cos()), -1)).chunk(2, -1)),
    Near("dropout", "ATTNC-DROPOUT", "dropout", "Set this p to 0", PLAIN,
         lambda q, k, v: F.dropout(weights(q, k), 0.3, True) @ v,
         lambda q, k, v: F.dropout(weights(q, k), 0.0, True) @ v),
    Near("dropout of a call", "ATTNC-DROPOUT", "scaled_dot_product_attention", "dropout_p=0.0", "causal, MHA",
         lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True),
         lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.0, is_causal=True)),
    Near("rounded weights", WEIGHTS, "round", "unrounded", PLAIN,
         lambda q, k, v: weights(q, k).round() @ v,
         lambda q, k, v: weights(q, k) @ v),
    Near("a number added to weights", WEIGHTS, "add.Tensor", "w @ v + b @ v", PLAIN,
         lambda q, k, v, b: (weights(q, k) + b) @ v,
         lambda q, k, v, b: weights(q, k) @ v + b @ v, (torch.zeros(S, S),)),
    Near("subtracted from weights", WEIGHTS, "sub.Tensor", "w @ v - b @ v", PLAIN,
         lambda q, k, v, b: (weights(q, k) - b) @ v,
         lambda q, k, v, b: weights(q, k) @ v - b @ v, (torch.zeros(S, S),)),
    Near("NaN to one half", WEIGHTS, "nan_to_num", "nan_to_num(0.0)", PLAIN,
         lambda q, k, v: weights(q, k).nan_to_num(0.5) @ v,
         lambda q, k, v: weights(q, k).nan_to_num(0.0) @ v),
    Near("NaN after a factor", WEIGHTS, "nan_to_num", "before the factor", "weights times ",
         lambda q, k, v, m: (weights(q, k) * m).nan_to_num(0.0) @ v,
         lambda q, k, v, m: (weights(q, k).nan_to_num(0.0) * m) @ v, (torch.ones(S),)),
    Near("sliced weights", WEIGHTS, "slice", "Slice the keys before the softmax", PV,
         lambda q, k, v: weights(q, k)[..., 2:] @ v[:, :, 2:],
         lambda q, k, v: weights(q, k[:, :, 2:]) @ v[:, :, 2:]),
    # -- the scores ----------------------------------------------------------------------------------------------------
    Near("sorted scores", OP, "sort", "no attention", PLAIN,
         lambda q, k, v: attend(scores(q, k).sort(-1).values, v),
         lambda q, k, v: attend(scores(q, k), v)),
    Near("cumulated scores", OP, "cumsum", "take it out", PLAIN,
         lambda q, k, v: attend(scores(q, k).cumsum(-1), v),
         lambda q, k, v: attend(scores(q, k), v)),
    Near("the largest scores", OP, "topk", "a mask computed from inputs", PV,
         lambda q, k, v: attend(scores(q, k).topk(5, -1).values, v[:, :, :5]),
         lambda q, k, v: attend(scores(q, k).masked_fill(hidden(), -INF), v)),
    Near("rounded scores", OP, "round", "unrounded", CAUSAL,
         lambda q, k, v: attend(scores(q, k).round().masked_fill(hidden(), -INF), v),
         lambda q, k, v: attend(scores(q, k).masked_fill(hidden(), -INF), v)),
    Near("flipped scores", OP, "flip", "k.flip(-2)", PLAIN,
         lambda q, k, v: attend(scores(q, k).flip(-1), v),
         lambda q, k, v: attend(scores(q, k.flip(-2)), v)),
    Near("rolled scores", OP, "roll", "k.roll(n, -2)", PLAIN,
         lambda q, k, v: attend(scores(q, k).roll(3, -1), v),
         lambda q, k, v: attend(scores(q, k.roll(3, -2)), v)),
    Near("joined scores", OP, "cat", "torch.cat((k1, k2), -2)", QK,
         lambda q, k, v: attend(torch.cat((scores(q, k), scores(q, v)), -1), torch.cat((v, k), -2)),
         lambda q, k, v: attend(scores(q, torch.cat((k, v), -2)), torch.cat((v, k), -2))),
    Near("sliced scores", OP, "slice", "Slice K (or Q)", QK,
         lambda q, k, v: attend(scores(q, k)[..., :7], v[:, :, :7]),
         lambda q, k, v: attend(scores(q, k[:, :, :7]), v[:, :, :7])),
    Near("selected scores", OP, "select", "Select from K (or Q)", QK,
         lambda q, k, v: attend(scores(q, k)[:, 0], v[:, 0]),
         lambda q, k, v: attend(scores(q[:, 0], k[:, 0]), v[:, 0])),
    Near("indexed scores", OP, "index", "Index K (or Q)", QK,
         lambda q, k, v, i: attend(scores(q, k)[:, :, :, i], v[:, :, i]),
         lambda q, k, v, i: attend(scores(q, k[:, :, i]), v[:, :, i]), (torch.arange(5),)),
    Near("gathered scores", OP, "gather", "Gather K", PLAIN,
         lambda q, k, v, i: attend(scores(q, k).gather(-1, i.expand(B, H, S, S)), v),
         lambda q, k, v, i: attend(scores(q, k.gather(2, i[:, None].expand(B, H, S, D))), v), (torch.arange(S),)),
    Near("padded scores", OP, "pad", "mask the padded keys", QK,
         lambda q, k, v: attend(F.pad(scores(q, k), (0, 3), value=-INF), F.pad(v, (0, 0, 0, 3))),
         lambda q, k, v: attend(scores(q, F.pad(k, (0, 0, 0, 3))).masked_fill(torch.arange(S + 3) >= S, -INF),
                                F.pad(v, (0, 0, 0, 3)))),
    Near("a slice written", OP, "slice_scatter", "masked_fill with a condition", PLAIN,
         lambda q, k, v: (lambda s: (s[..., 8:].fill_(-INF), attend(s, v))[1])(scores(q, k)),
         lambda q, k, v: attend(scores(q, k).masked_fill(torch.arange(S) >= 8, -INF), v)),
    Near("elements written", OP, "index_put", "masked_fill with a condition", PLAIN,
         lambda q, k, v, i: (lambda s: (s.__setitem__((..., i), -INF), attend(s, v))[1])(scores(q, k)),
         lambda q, k, v, i: attend(scores(q, k).masked_fill(torch.arange(S) < 3, -INF), v), (torch.arange(3),)),
    Near("lower scores", OP, "tril", "torch.ones(q, k, dtype=torch.bool).tril()", CAUSAL,
         lambda q, k, v: (lambda s: attend(s.masked_fill(hidden(), -INF), v))(scores(q, k).tril()),
         lambda q, k, v: attend(scores(q, k).masked_fill(~torch.ones(S, S, dtype=torch.bool).tril(), -INF), v)),
    Near("upper scores", OP, "triu", "torch.ones(q, k, dtype=torch.bool).triu()", PLAIN,
         lambda q, k, v: attend(scores(q, k).triu(), v),
         lambda q, k, v: attend(scores(q, k).masked_fill(~torch.ones(S, S, dtype=torch.bool).triu(), -INF), v)),
    Near("dropout of scores", OP, "dropout", "Set its p to 0", PLAIN,
         lambda q, k, v: attend(F.dropout(scores(q, k), 0.1, True), v),
         lambda q, k, v: attend(F.dropout(scores(q, k), 0.0, True), v)),
    Near("relu", OP, "relu", "clamp(min=0)", PLAIN,
         lambda q, k, v: attend(scores(q, k).relu(), v),
         lambda q, k, v: attend(scores(q, k).clamp(min=0), v)),
    Near("square", OP, "pow", "x * x", PLAIN,
         lambda q, k, v: attend(scores(q, k) ** 2, v),
         lambda q, k, v: (lambda s: attend(s * s, v))(scores(q, k))),
    Near("softplus", OP, "softplus", "torch.log(1 + s.exp())", PLAIN,
         lambda q, k, v: attend(F.softplus(scores(q, k)), v),
         lambda q, k, v: attend(torch.log(1 + scores(q, k).exp()), v)),
    Near("silu", OP, "silu", "s * torch.sigmoid(s)", PLAIN,
         lambda q, k, v: attend(F.silu(scores(q, k)), v),
         lambda q, k, v: (lambda s: attend(s * s.sigmoid(), v))(scores(q, k))),
    Near("normalised scores", OP, "layer_norm", "Normalise Q or K", PLAIN,
         lambda q, k, v: attend(F.layer_norm(scores(q, k), (S,)), v),
         lambda q, k, v: attend(scores(F.layer_norm(q, (D,)), k), v)),
    Near("a mask of the scores", CONDITION, "lt.Scalar", "from positions or inputs", PLAIN,
         lambda q, k, v: (lambda s: attend(s.masked_fill(s < 0, -INF), v))(scores(q, k)),
         lambda q, k, v: attend(scores(q, k).masked_fill(hidden(), -INF), v)),
    # -- the softmax written out ---------------------------------------------------------------------------------------
    Near("mean subtracted", FORM, "sub.Tensor", "s.amax(-1, keepdim=True)", PLAIN,
         lambda q, k, v: normalised(((s := scores(q, k)) - s.mean(-1, keepdim=True)).exp()) @ v,
         lambda q, k, v: normalised(((s := scores(q, k)) - s.amax(-1, keepdim=True)).exp()) @ v),
    Near("a large number added", FORM, "add.Tensor", "at most 1e-8", PLAIN,
         lambda q, k, v: (e := exps(q, k)) / (e.sum(-1, keepdim=True) + 1e-3) @ v,
         lambda q, k, v: (e := exps(q, k)) / (e.sum(-1, keepdim=True) + 1e-8) @ v),
    Near("one added to a shifted sum", FORM, "add.Tensor", "Subtract no maximum", PLAIN,
         lambda q, k, v: (e := exps(q, k)) / (e.sum(-1, keepdim=True) + 1) @ v,
         lambda q, k, v: (e := scores(q, k).exp()) / (e.sum(-1, keepdim=True) + 1) @ v),
    Near("one added, shifted", FORM, "add.Tensor", "exp(- m) with m the maximum", PLAIN,
         lambda q, k, v: (e := exps(q, k)) / (1 + e.sum(-1, keepdim=True)) @ v,
         lambda q, k, v: plus_one(scores(q, k)) @ v),
    Near("two terms", FORM, "add.Tensor", "torch.logaddexp(a, b).exp()", PLAIN,
         lambda q, k, v, a: (e := scores(q, k).exp()) / (e.sum(-1, keepdim=True) + a.exp() + 1) @ v,
         lambda q, k, v, a: (e := scores(q, k).exp()) / (e.sum(-1, keepdim=True) + torch.logaddexp(a, a * 0).exp()) @ v,
         (torch.zeros(H, 1, 1),)),
    Near("no exponential added", FORM, "add.Tensor", "exp(sink - m)", PLAIN,
         lambda q, k, v, a: (e := scores(q, k).exp()) / (e.sum(-1, keepdim=True) + a.cos()) @ v,
         lambda q, k, v, a: (e := scores(q, k).exp()) / (e.sum(-1, keepdim=True) + a.exp()) @ v,
         (torch.zeros(H, 1, 1),)),
    Near("clamped sum", FORM, "clamp", "at 1 or less", PLAIN,
         lambda q, k, v: (e := exps(q, k)) / e.sum(-1, keepdim=True).clamp(min=2.0) @ v,
         lambda q, k, v: (e := exps(q, k)) / e.sum(-1, keepdim=True).clamp(min=1.0) @ v),
    Near("the sum used twice", FORM, "log", "compute them once more", PLAIN,
         lambda q, k, v: ((e := exps(q, k)) @ v / (z := e.sum(-1, keepdim=True)), z.log()),
         lambda q, k, v: ((e := exps(q, k)) @ v / e.sum(-1, keepdim=True), exps(q, k).sum(-1).log())),
    Near("a sum without its dimension", FORM, "sum.dim_IntList", "e.sum(-1, keepdim=True)", PLAIN,
         lambda q, k, v: (e := exps(q, k)) / e.sum(-1) @ v,
         lambda q, k, v: (e := exps(q, k)) / e.sum(-1, keepdim=True) @ v, inputs=lambda: qkv(S, D)),
    Near("a product read undivided", FORM, "matmul", "only after its division", PLAIN,
         lambda q, k, v: ((o := (e := exps(q, k)) @ v) / e.sum(-1, keepdim=True), o),
         lambda q, k, v: (o := (e := exps(q, k)) @ v / e.sum(-1, keepdim=True), o + 1)),
    Near("an op before the division", FORM, "relu", "Divide first", PLAIN,
         lambda q, k, v: ((e := exps(q, k)) @ v).relu() / e.sum(-1, keepdim=True),
         lambda q, k, v: ((e := exps(q, k)) @ v / e.sum(-1, keepdim=True)).relu()),
    Near("divided by other rows", FORM, "div.Tensor", "e.sum(-1, keepdim=True)", PLAIN,
         lambda q, k, v: ((e := exps(q, k)) @ v) / e.sum(-1).mT[..., None],
         lambda q, k, v: ((e := exps(q, k)) @ v) / e.sum(-1, keepdim=True), inputs=lambda: qkv(B, S, S, D)),
    # -- the contractions ----------------------------------------------------------------------------------------------
    Near("softmax over the queries", CONTRACTION, "matmul", "softmax(dim=-1)", PLAIN,
         lambda q, k, v: scores(q, k).softmax(-2) @ v,
         lambda q, k, v: scores(q, k).softmax(-1) @ v),
    Near("talking heads", CONTRACTION, "einsum", "weights of other heads", PLAIN,
         lambda q, k, v, m: torch.einsum("gh,bhqk->bgqk", m, weights(q, k)) @ v,
         lambda q, k, v, m: torch.einsum("gh,bhqd->bgqd", m, weights(q, k) @ v), (torch.eye(H),)),
    Near("transposed scores added", CONTRACTION, "matmul", "a product of its own", QK,
         lambda q, k, v: (lambda s: attend(s + s.mT, v))(q @ k.mT),
         lambda q, k, v: attend(q @ k.mT + k @ q.mT, v)),
    Near("two dimensions summed", CONTRACTION, "einsum", "Flatten the dimensions", QK,
         lambda q, k, v: attend(torch.einsum("bqhd,bkhd->bqk", q, k), v.flatten(2)),
         lambda q, k, v: attend(q.flatten(2) @ k.flatten(2).mT, v.flatten(2))),
    Near("weights twice", CONTRACTION, "matmul", "by V alone", SOFTMAX,
         lambda q, k, v: (lambda w: (w @ w) @ v)(weights(q, k)),
         lambda q, k, v: weights(q, k) @ (weights(q, k) @ v)),
    Near("added to P·V", CONTRACTION, "baddbmm", "add to its result", PV,
         lambda q, k, v: torch.baddbmm(q, weights(q, k), v),
         lambda q, k, v: torch.bmm(weights(q, k), v) + q, inputs=lambda: qkv(B, S, D)),
    Near("two features", CONTRACTION, "einsum", "Flatten V's features", PV,
         lambda q, k, v: torch.einsum("bhqk,bhkde->bhqde", weights(q, k), v.unflatten(-1, (4, 4))),
         lambda q, k, v: (weights(q, k) @ v.unflatten(-1, (4, 4)).flatten(-2)).unflatten(-1, (4, 4))),
    Near("no feature", CONTRACTION, "einsum", "v[..., None]", PV,
         lambda q, k, v: torch.einsum("bhqk,bhk->bhq", weights(q, k), v[..., 0]),
         lambda q, k, v: (weights(q, k) @ v[..., 0][..., None])[..., 0]),
    Near("V in more batches", CONTRACTION, "matmul", "q.expand", PV,
         lambda q, k, v: weights(q[:1], k[:1]) @ v,
         lambda q, k, v: weights(q[:1].expand(B, H, S, D), k[:1]) @ v),
    # -- layouts -------------------------------------------------------------------------------------------------------
    Near("weights cut along the keys", LAYOUT, "view", "dimensions of their own", SOFTMAX,
         lambda q, k, v: weights(q, k).view(B, H, S, 3, 4).sum(-1) @ v[:, :, :3],
         lambda q, k, v: weights(q, k) @ v),
    Near("scores cut along the keys", LAYOUT, "view", "dimensions of their own", QK,
         lambda q, k, v: attend(scores(q, k).view(B, H, 18, 8), v[:, :, :8]),
         lambda q, k, v: attend(scores(q, k), v)),
    Near("a batch that only the mask has", LAYOUT, "softmax.int", "once for each index", QK,
         lambda q, k, v, m: (scores(q, k) + m).softmax(-1) @ v,
         lambda q, k, v, m: torch.stack([attend(scores(q, k) + m[i], v) for i in range(2)]),
         (torch.zeros(2, 1, 1, 1, S),)),
    # -- shapes, dtypes, arguments -------------------------------------------------------------------------------------
    Near("one key", "ATTNC-SINGLE-KEY", "softmax.int", "the result is V", QK,
         lambda q, k, v: (q @ k[:, :, :1].mT).softmax(-1) @ v[:, :, :1],
         lambda q, k, v: (q @ k[:, :, :2].mT).softmax(-1) @ v[:, :, :2]),
    Near("no rows", "ATTNC-EMPTY", "softmax.int", "no row or no key", QK,
         lambda q, k, v: (q[:, :, :0] @ k.mT).softmax(-1) @ v,
         lambda q, k, v: (q[:, :, :1] @ k.mT).softmax(-1) @ v),
    Near("all hidden", "ATTNC-NOTHING-VISIBLE", "softmax.int", "Invert the mask", "every key hidden",
         lambda q, k, v: scores(q, k).masked_fill(torch.arange(S) >= 0, -INF).softmax(-1) @ v,
         lambda q, k, v: scores(q, k).masked_fill(~(torch.arange(S) >= 0), -INF).softmax(-1) @ v),
    Near("float64", "ATTNC-DTYPE", "softmax.int", "float32, bfloat16 or float16", PLAIN,
         lambda q, k, v: (q @ k.mT * 0.25).softmax(-1) @ v,
         lambda q, k, v: attend(scores(q.float(), k.float()), v.float()).double(),
         inputs=lambda: qkv(dtype=torch.float64)),
]
# fmt: on


FAST = {next(case.name for case in CASES if case.code == code) for code in (USED, OP, FORM, CONTRACTION, LAYOUT)}
EACH = [
    pytest.param(case, id=case.name.replace(" ", "-"), marks=[] if case.name in FAST else [pytest.mark.slow])
    for case in CASES
]


class _Module(nn.Module):
    def __init__(self, run: Program) -> None:
        super().__init__()
        self.run = run

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *more: Tensor) -> Any:
        return self.run(q, k, v, *more)


def report(run: Program, case: Near) -> Report:
    """What the matching says of a program; no kernel is made."""
    inputs = (*(case.inputs or qkv)(), *case.more)
    exported = torch.export.export(_Module(run), inputs, strict=True)
    graph, context = import_graph(capture_exported(exported).graph_module), Context()
    Canonicalize().run(graph, context)
    Distribute().run(graph, context)
    FuseAttention().run(graph, context)
    return Report("program", "aten", sites=context.sites)


def attentions(found: Report) -> list[Site]:
    return [site for site in found.sites if site.attention]


def here(run: Program) -> str:
    return f"{Path(__file__).name}:{inspect.getsourcelines(run)[1]}: "


@pytest.mark.parametrize("case", EACH)
def test_the_refusal_names_form_blocker_and_edit(case: Near) -> None:
    (site,) = [site for site in report(case.refused, case).sites if not site.fused]
    assert site.code == case.code, site
    op, at = site.blocker.split(" at ", 1)
    assert case.blocker in op and here(case.refused) in at, site
    assert case.says in site.edit, site
    assert case.form in site.nearest, site


@pytest.mark.parametrize("case", EACH)
def test_the_edited_program_fuses(case: Near) -> None:
    found = report(case.edited, case)
    sites = attentions(found)
    assert sites and all(site.fused for site in sites), [(site.code, site.reason) for site in sites]


# -- graphs that no program of today captures --------------------------------------------------------------------------

GRAPH = """
graph @g(%q: f32[2, 12, 16], %k: f32[2, 12, 16], %v: f32[2, 12, 16], %n: int, %c: bool) {
  %t: f32[2, 16, 12] strides(192, 1, 16) = aten.transpose.int(%k, 1, 2)
  %s: f32[2, 12, 12] = aten.bmm.default(%q, %t)
  %p: f32[2, 12, 12] = aten.softmax.int(%s, -1)  loc("model.py":7 "p = s.softmax(-1)")
  %o: f32[2, 12, 16] = aten.bmm.default(%p, %v)
  return %o
}
"""
CALL = """
graph @g(%q: f32[2, 12, 16], %k: f32[2, 12, 16], %v: f32[2, 12, 16], %c: bool) {
  %o: f32[2, 12, 16] = aten.scaled_dot_product_attention.default(%q, %k, %v, None, 0.0, False)  loc("model.py":7 "o")
  return %o
}
"""
GRAPHS = [
    ("ATTNC-SOFTMAX-AXIS", GRAPH.replace("%s, -1", "%s, %n"), GRAPH, "Pass a constant dim."),
    ("ATTNC-DEVICE", re.sub(r"(: f32\[[^]]*\](?: strides\([^)]*\))?)", r'\1 on "cuda:0"', GRAPH), GRAPH, "to the CPU"),
    ("ATTNC-SDPA-ARGUMENT", CALL.replace("False)", "%c)"), CALL, "True or False for is_causal"),
]


def explained(text: str) -> Site:
    graph, context = parse_graph(text), Context()
    verify(graph)
    before = print_graph(graph)
    FuseAttention().run(graph, context)
    (site,) = context.sites
    assert site.fused or print_graph(graph) == before  # what is tried is tried on a copy
    return site


@pytest.mark.parametrize(("code", "refused", "edited", "says"), GRAPHS, ids=[code for code, *_ in GRAPHS])
def test_a_refused_graph(code: str, refused: str, edited: str, says: str) -> None:
    site = explained(refused)
    assert site.code == code and says in site.edit
    assert " at model.py:7: " in site.blocker and site.nearest
    assert explained(edited).fused


def test_a_formula_without_a_kernel_still_has_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_kernel(*_: object) -> None:
        raise ValueError("a term no kernel has")

    monkeypatch.setattr("attnc.compiler.fuse.find.formulas", no_kernel)
    site = explained(GRAPH)
    assert (site.code, site.reason) == ("ATTNC-PLAN", "a term no kernel has")
    assert site.nearest == "softmax(qk)·V, MHA" and "report the formula" in site.edit


def test_every_code_of_an_attention_that_is_left_is_shown_here() -> None:
    shown = {case.code for case in CASES} | {code for code, *_ in GRAPHS} | {"ATTNC-PLAN"}
    assert {name for name, code in CODES.items() if code.level == "left"} == shown


def test_every_edit_for_an_op_is_proved_by_a_pair() -> None:
    unproved = {text for text in EDITS.values() if not any(case.says in text for case in CASES)}
    assert not unproved


def test_what_would_be_in_the_way_next() -> None:
    case = CASES[0]
    found = report(lambda q, k, v: (w := scores(q, k).cumsum(-1).softmax(-1), w @ v), case)
    (site,) = found.sites
    assert site.code == USED and "Next in the way: ATTNC-SCORE-OP, aten.cumsum.default" in site.edit


def test_every_rendering_shows_them() -> None:
    found = report(CASES[0].refused, CASES[0])
    (site,) = found.sites
    for text in (str(found), found._repr_html_(), found.to_json()):
        flat = html.unescape(re.sub(r"[│\s]+|<br>", " ", text))
        for part in (site.nearest, site.edit, "aten.softmax.int"):
            assert part in flat or part in json.loads(text)["sites"][0].values(), flat
    assert Report.from_json(found.to_json()).sites == found.sites
