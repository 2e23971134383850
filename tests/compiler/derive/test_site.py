"""Attentions of a few lines: what is proved of each, against the numbers of several batches, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from attnc.compiler.derive.refusal import NotDerivable
from attnc.compiler.derive.site import SiteFacts, site_of
from attnc.compiler.derive.step import Step
from tests.compiler.derive.worlds import ALONE, WORLDS, Case, case, check, claim


@dataclass(frozen=True)
class Attention:
    """An ``attn.attention`` on the heads of ``worlds.INPUTS``; what isn't given is a plain causal one."""

    mask: str = "k <= q"
    visible: str = "qk * 0.5"
    fill: str = "minus_inf"
    sides: str = ""
    sizes: str = ""
    """Names of sizes, each with the value of that letter."""
    softmax: str = "plain"
    more: str = ""
    axes: str = "q = [b, h, q, d], k = [b, h, k, d], v = [b, h, k, e], out = [b, h, q, e]"
    operands: str = "%h, %h, %h"
    result: str = "f32[B, 3, S, 4]"
    before: str = ""

    @property
    def lines(self) -> str:
        """The text of the case."""
        hidden = "-inf" if self.fill == "minus_inf" else self.fill[len("finite(") : -1]
        sizes = f"sizes = [{self.sizes.upper()}]" if self.sizes else ""
        given = ", ".join(f"%{name.strip()}" for name in self.sizes.split(",")) if self.sizes else ""
        entries = (
            self.axes,
            sizes,
            "qk = f32",
            f"score = where({self.mask}, {self.visible}, {hidden})",
            f"visible = {self.visible}",
            f"mask = {self.mask}",
            f"fill = {self.fill}",
            f"softmax = {self.softmax} f32",
            self.more,
            "out_dtype = f32",
        )
        body = "\n".join(entry for entry in entries if entry)
        call = f"attn.attention({self.operands}, [{self.sides}], [{given}])"
        return f"{self.before}\n%y: {self.result} = {call} {{\n{body}\n}}"


def facts(made: Case) -> SiteFacts:
    """What is proved of the attention of a case."""
    op = next(op for op in made.graph.ops if op.name == "attn.attention")
    return site_of(Step(op, made.axes, made.facts))


BATCHES = WORLDS[:2]
"""Of unlike lengths, with some of the same tokens: an attention takes longer to run than other ops."""
END = "%n: int<64 - S> = py.sub(64, %s)\n%end: f32[S] = aten.slice.Tensor(%long, 0, %n, 64)\n"
ENDS = "%n: int<16 - S> = py.sub(16, %s)\n%end: f32[S, 4] = aten.slice.Tensor(%table, 0, %n, 16)\n"
CROSS = (
    "%e1: f32[B, 1, E, 4] = aten.unsqueeze.default(%encoded, 1)\n"
    "%e2: f32[B, 3, E, 4] = aten.repeat.default(%e1, [1, 3, 1, 1])\n"
)
RELATIVE = "qk * 0.5 + t0[k - q + S - 1, h]"
SEEN: dict[str, tuple[Attention, int | None]] = {
    "causal": (Attention(), None),
    "window": (Attention("(k <= q) & (k > q - 3)"), 3),
    "window of one": (Attention("k == q"), 1),
    "window and sink tokens": (Attention("(k <= q) & ((k > q - 3) | (k < 1))"), None),
    "chunks": (Attention("(k <= q) & (k // 4 == q // 4)"), 4),
    "every other key": (Attention("(k <= q) & ((q - k) % 2 == 0)"), None),
    "the window of each head": (Attention("(k <= q) & (k > q - h - 1)"), None),
    "a finite fill": (Attention(fill="finite(-10000.0)"), None),
    "strictly before, minus infinity": (Attention("k < q", more="dead_rows = zero"), None),
    "bias by key": (Attention(visible="qk * 0.5 + t0[k]", sides="%posf"), None),
    "bias by query": (Attention(visible="qk * 0.5 + t0[q]", sides="%posf"), None),
    "bias by both": (Attention(visible="qk * 0.5 + t0[q, k]", sides="%grid"), None),
    "bias by distance in a constant": (Attention(visible="qk * 0.5 + t0[q - k]", sides="%long"), None),
    "slope of each head": (Attention(visible="qk * 0.5 + t0[h] * f32(k - q)", sides="%vec"), None),
    "relative table": (Attention(visible=RELATIVE, sides="%fars", sizes="s"), None),
    "relative table in a window": (
        Attention("(k <= q) & (k >= q - 1)", visible=RELATIVE, sides="%fars", sizes="s"),
        2,
    ),
    "a mask that is a table": (
        Attention(
            "(k <= q) & (t0[q, k] != 0)",
            sides="%near",
            before="%near: b1[S, S] = aten.gt.Scalar(%grid, -0.5)",
            more="dead_rows = zero",
        ),
        None,
    ),
    "the end of a table": (Attention(visible="qk * 0.5 + t0[k]", sides="%end", before=END), None),
    "slope of each head from the end": (
        Attention(visible="qk * 0.5 + t0[h] * f32(k - S + 1)", sides="%vec", sizes="s"),
        None,
    ),
    "sink": (Attention(softmax="sink", more="sink = t0[h]", sides="%vec"), None),
    "plus one": (Attention(softmax="plus_one"), None),
    "a factor of each head": (Attention(more="weight = t0[h]", sides="%vec"), None),
    "softcap": (Attention(visible="tanh(qk * 0.1) * 10.0"), None),
    "one head for all": (
        Attention(
            operands="%h, %x, %x", axes="q = [b, h, q, d], k = [b, k, d], v = [b, k, e], out = [b, q, h, e]",
            result="f32[B, S, 3, 4]",
        ),
        None,
    ),
    "tokens first": (
        Attention(
            operands="%turned, %turned, %turned", axes="q = [q, b, d], k = [k, b, d], v = [k, b, e], out = [q, b, e]",
            result="f32[S, B, 4]",
        ),
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SEEN)
def test_what_is_proved_of_a_site(name: str) -> None:
    attention, window = SEEN[name]
    made = case(attention.lines)
    found = facts(made)
    assert (found.window, found.batch, found.cross) == (window, "b", False)
    assert found.result == made.known
    if found.ramps:
        assert [value.name for value in found.ramps] == ["long"]  # checked by its numbers, once they are known
    else:
        check(made, BATCHES, reach=window)


def test_a_window_is_not_too_wide() -> None:
    """The trap beside the windows: of a token less than it reaches the numbers disagree."""
    made = case(SEEN["window"][0].lines)
    with pytest.raises(AssertionError):
        check(made, WORLDS, reach=2)
    whole = case(SEEN["causal"][0].lines)
    with pytest.raises(AssertionError):
        check(whole, WORLDS, reach=3)


def test_one_token_is_enough() -> None:
    attention, window = SEEN["chunks"]
    check(case(attention.lines), (WORLDS[0], ALONE), reach=window)


def test_cross_attention() -> None:
    """Keys of the encoder: every one is there from the start, so no mask is asked for."""
    found = facts(case(Attention("True", operands="%h, %e2, %e2", before=CROSS).lines))
    assert (found.cross, found.window, found.batch) == (True, None, "b")
    assert claim(found.result) == "TOKEN B 3 S 4"


TURNED = "%m: f32[3*B, S, 4] = aten.reshape.default(%h, [-1, %s, 4])"
FOLDED = "q = [b, q, d], k = [b, k, d], v = [b, k, e], out = [b, q, e]"
REFUSED: dict[str, tuple[Attention, str]] = {
    "every key": (Attention("True"), "NOT-CAUSAL"),
    "later keys only": (Attention("k >= q"), "NOT-CAUSAL"),
    "one key ahead": (Attention("k <= q + 1"), "NOT-CAUSAL"),
    "a prefix seen by all": (Attention("(k <= q) | (k < 2)"), "NOT-CAUSAL"),
    "whole chunks": (Attention("k // 4 == q // 4"), "NOT-CAUSAL"),
    "a window to both sides": (Attention("(k <= q + 2) & (k >= q - 2)"), "NOT-CAUSAL"),
    "causal by a table": (
        Attention("t0[q, k] != 0", sides="%t", before="%t: b1[S, S] = aten.gt.Scalar(%grid, 0)"),
        "NOT-CAUSAL",
    ),
    "the last keys": (Attention("(k <= q) & (k >= S - 5)", sizes="s"), "LENGTH"),
    "a window as wide as half": (Attention("(k <= q) & (2 * (q - k) <= S)", sizes="s"), "LENGTH"),
    "a slope by key from the end": (
        Attention(visible="qk * 0.5 + t0[k] * f32(k - S + 1)", sides="%posf", sizes="s"),
        "LENGTH",
    ),
    "a product of two positions from the end": (
        Attention(visible="qk * 0.5 + f32((k - S) * (k - S)) * 0.1", sizes="s"),
        "LENGTH",
    ),
    "positions from the end under a sink": (
        Attention(visible="qk + f32(k - S)", sizes="s", softmax="plus_one"),
        "LENGTH",
    ),
    "a score scaled by the length": (Attention(visible="qk * f32(S)", sizes="s"), "LENGTH"),
    "a window of each request": (Attention("(k <= q) & (k > q - b - 1)"), "BATCH"),
    "a slope of each request": (Attention(visible="qk * f32(b)"), "BATCH"),
    "a bias of each request": (Attention(visible="qk * 0.5 + t0[b, k]", sides="%own"), "BATCH|ATTENTION"),
    "padding": (Attention("(k <= q) & (t0[b, k] != 0)", sides="%ids"), "ATTENTION|BATCH"),
    "a bias of the length": (Attention(visible="qk * 0.5 + t0[k]", sides="%late"), "LENGTH"),
    "a factor of the length": (Attention(visible="qk * t0[0]", sides="%total"), "LENGTH"),
    "a bias of data": (Attention(visible="qk * 0.5 + t0[b, k, 0]", sides="%x"), "ATTENTION|BATCH"),
    "differences at a key": (Attention(visible="qk * 0.5 + t0[k, h]", sides="%fars"), "LENGTH"),
    "differences the other way": (
        Attention(visible="qk * 0.5 + t0[q - k + S - 1, h]", sides="%fars", sizes="s"),
        "LENGTH",
    ),
    "differences off by one": (
        Attention(visible="qk * 0.5 + t0[k - q + S - 2, h]", sides="%fars", sizes="s"),
        "LENGTH",
    ),
    "positions from the end": (Attention(visible="qk * 0.5 + t0[S - 1 - k]", sides="%posf", sizes="s"), "LENGTH"),
    "a row that sees nothing, finite": (Attention("k < q", fill="finite(-10000.0)"), "ATTENTION"),
    "rows between chunks, finite": (Attention("(k <= q) & (k // 4 < q // 4)", fill="finite(-10000.0)"), "ATTENTION"),
    "a table may hide a row, finite": (
        Attention("(k <= q) & (t0[k] != 0)", fill="finite(-10000.0)", sides="%pos"),
        "ATTENTION",
    ),
    "the end of a table in a sink": (
        Attention(visible="qk * 0.5 + t0[k]", sides="%end", before=END, softmax="sink", more="sink = t0[0]"),
        "LENGTH",
    ),
    "the end of a table beside a sink": (
        Attention(visible="qk * 0.5 + t0[k]", sides="%end, %vec", before=END, softmax="sink", more="sink = t1[h]"),
        "LENGTH",
    ),
    "the end of a table by query": (Attention(visible="qk * 0.5 + t0[q]", sides="%end", before=END), "LENGTH"),
    "the end of a table one later": (Attention(visible="qk * 0.5 + t0[k - 1]", sides="%end", before=END), "LENGTH"),
    "the end of a table as a factor": (Attention(visible="qk * t0[k]", sides="%end", before=END), "LENGTH"),
    "the end of a table twice": (Attention(visible="qk + t0[k] + t0[k] * 2.0", sides="%end", before=END), "LENGTH"),
    "the end of a table in a weight": (
        Attention(visible="qk + t0[k]", more="weight = t0[k]", sides="%end", before=END),
        "LENGTH",
    ),
    "the end of a table under a cap": (Attention(visible="tanh(qk + t0[k])", sides="%end", before=END), "LENGTH"),
    "batch and heads merged": (
        Attention(operands="%m, %m, %m", axes=FOLDED, result="f32[3*B, S, 4]", before=TURNED),
        "MIXES",
    ),
    "tokens as requests": (
        Attention(operands="%turned, %turned, %turned", axes=FOLDED, result="f32[S, B, 4]"),
        "ATTENTION|MIXES",
    ),
    "queries that are positions": (
        Attention(
            operands="%p, %h, %h", before="%p: f32[B, 3, S, 4] = aten.expand.default(%ptab, [%b, 3, %s, 4])"
        ),
        "ATTENTION",
    ),
    "keys that are positions": (
        Attention(
            operands="%h, %p, %h", before="%p: f32[B, 3, S, 4] = aten.expand.default(%ptab, [%b, 3, %s, 4])"
        ),
        "ATTENTION",
    ),
    "keys that know the length": (
        Attention(
            operands="%h, %p, %h",
            before="%l: f32[S, 1] = aten.unsqueeze.default(%late, 1)\n%p: f32[B, 3, S, 4] = aten.mul.Tensor(%h, %l)",
        ),
        "LENGTH",
    ),
    "keys of other tokens": (
        Attention(operands="%h, %f, %h", before="%f: f32[B, 3, S, 4] = aten.flip.default(%h, [2])"),
        "MIXES",
    ),
    "values of other requests": (
        Attention(operands="%h, %h, %f", before="%f: f32[B, 3, S, 4] = aten.roll.default(%h, [1], [0])"),
        "MIXES",
    ),
    "shared keys without a request": (
        Attention(
            operands="%h, %w, %w",
            axes="q = [b, h, q, d], k = [k, d], v = [k, e], out = [b, h, q, e]",
            before="%w: f32[S, 4] = aten.slice.Tensor(%table, 0, 0, %s)",
        ),
        "ATTENTION",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_incremental_form(name: str) -> None:
    attention, code = REFUSED[name]
    found = case(attention.lines).found
    assert isinstance(found, NotDerivable), claim(found) if not isinstance(found, tuple) else found
    assert found.code.removeprefix("ATTNC-DERIVE-") in code.split("|"), str(found)


TRAPS: dict[str, Attention] = {
    "a size in a load of a mask": Attention("(k <= q) & ((t0[S - 1 - k] != 2) | (k == q))", sides="%pos", sizes="s"),
    "a size in a load of integers": Attention(visible="qk * f32(t0[S - 1 - k])", sides="%pos", sizes="s"),
    "the middle of a table as a number": Attention(visible="qk * f32(k - q + S - 1)", sizes="s"),
    "the middle of a table compared": Attention("(k <= q) & ((k - q + S - 1 >= 3) | (k == q))", sizes="s"),
    "a constant read at a middle": Attention(visible="qk * 0.5 + t0[k - q + S - 1]", sides="%long", sizes="s"),
    "a weight of the length": Attention(more="weight = f32(k - q + S - 1)", sizes="s"),
    "a condition on a score of the length": Attention(
        visible="where(qk + f32(k - S) > -4.0, -inf, qk + f32(k - S))", sizes="s"
    ),
}
RAMPS: dict[str, Attention] = {
    "a condition on the end of a table": Attention(
        visible="where(qk + t0[k] > 0.0, -inf, qk * 0.5 + t0[k])", sides="%end", before=END
    ),
    "the end of a table along its first dimension": Attention(visible="qk * 0.5 + t0[k, h]", sides="%end", before=ENDS),
    "the end of a table at the key twice": Attention(visible="qk * 0.5 + t0[k, k % 4]", sides="%end", before=ENDS),
}


@pytest.mark.parametrize("name", TRAPS)
def test_the_length_in_disguise(name: str) -> None:
    """Each must be refused, or be what is said of it."""
    made = case(TRAPS[name].lines)
    check(made, BATCHES, reach=None)


@pytest.mark.parametrize("name", RAMPS)
def test_no_ramp_makes_it_right(name: str) -> None:
    """Two lengths differ by more than a number for each row, however evenly the last dimension rises."""
    assert isinstance(case(RAMPS[name].lines).found, NotDerivable)


def test_the_logarithm_of_the_sum() -> None:
    """A second result is refused where it is read."""
    text = Attention(more="lse = True").lines.replace(
        "%y: f32[B, 3, S, 4] =", "%o: f32[B, 3, S, 4], %l: f32[B, 3, S] ="
    )
    assert isinstance(case(f"{text}\n%y: f32[B, 3, S] = aten.neg.default(%l)").found, NotDerivable)
