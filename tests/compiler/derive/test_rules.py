"""Each rule on graphs of a few ops: what it says of the result, against the numbers of several batches."""

from __future__ import annotations

import dataclasses
import re

import pytest

from attnc.compiler.derive.known import Kind, Known
from attnc.compiler.derive.refusal import NotDerivable
from attnc.compiler.derive.rules import RULES, rule_of
from tests.compiler.derive.accepted_cases import FAMILIES
from tests.compiler.derive.refused_cases import REFUSED
from tests.compiler.derive.traps import CRASHES, TRAPS
from tests.compiler.derive.worlds import ALONE, WORLDS, Case, axes_of, case, check, claim

ELSEWHERE = {
    "attn.attention": "tests/compiler/derive/test_site.py",
    "aten.cummax": "traps.py: its results can't be taken apart",
    "aten.cummin": "traps.py: its results can't be taken apart",
    "aten.bincount": "the rule of histc; its result has a length that is data unless minlength is longer",
    "transformers.grouped_mm_fallback": "the rule of _grouped_mm; the operator belongs to another library",
}
"""Names of rules without a case here, and why."""


def ops_of(lines: str) -> list[str]:
    """Names of the ops in a case."""
    return re.findall(r"= ((?:aten|attn|transformers)\.[\w.]+)\(", lines)


def flat(families: dict[str, dict[str, str]]) -> list[object]:
    """Parameters, named by family, number and last op."""
    return [
        pytest.param(lines, says, id=f"{family}-{number}-{ops_of(lines)[-1]}")
        for family, cases in families.items()
        for number, (lines, says) in enumerate(cases.items())
    ]


@pytest.mark.parametrize(("lines", "says"), flat(FAMILIES))
def test_what_a_rule_says_is_so(lines: str, says: str) -> None:
    made = case(lines)
    assert claim(made.known) == says
    check(made)


@pytest.mark.parametrize(("lines", "code"), flat(REFUSED))
def test_what_would_mix_is_refused(lines: str, code: str) -> None:
    found = case(lines).found
    assert isinstance(found, NotDerivable), f"it says {found}"
    assert found.code.removeprefix("ATTNC-DERIVE-") in code.split("|"), str(found)


@pytest.mark.parametrize("lines", [lines for cases in FAMILIES.values() for lines in cases if "%s" in lines][::5])
def test_it_is_so_for_one_token(lines: str) -> None:
    """A step of a generator may bring one token of one request: nothing may depend on a length being 1."""
    check(case(lines), (WORLDS[0], ALONE))


def test_every_rule_has_a_case() -> None:
    seen = {op for cases in FAMILIES.values() for lines in cases for op in ops_of(lines)}
    without = {name for name in RULES if not any(rule_of(op) is RULES[name] and _names(name, op) for op in seen)}
    assert without == set(ELSEWHERE)


def _names(rule: str, op: str) -> bool:
    return op == rule or op.rpartition(".")[0] == rule


def test_rules_that_refuse_are_seen_to() -> None:
    """Every family has refusals, and no case is both accepted and refused."""
    assert set(REFUSED) == set(FAMILIES)
    accepted = {lines for cases in FAMILIES.values() for lines in cases}
    assert not accepted & {lines for cases in REFUSED.values() for lines in cases}


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ("%y: f32[B, S, 4] = aten.cumsum.default(%x, 1)", "TOKEN B S 4"),
        ("%y: f32[B, S, 4] = aten.flip.default(%x, [0])", "TOKEN B S 4"),
        ("%y: f32[B, 1, 4] = aten.mean.dim(%x, [1], True)", "UNIFORM B 1 4"),
        ("%y: f32[S] = aten.flip.default(%posf, [0])", "POSITION S"),
        ("%y: f32[S] = aten.div.Tensor(%posf, %s)", "POSITION S"),
        ("%y: i64[S] = aten.arange.default(%s)", "UNIFORM S"),
        ("%y: i64[B] = aten.arange.default(%b)", "UNIFORM B"),
        ("%y: f32[B, S, 4] = aten.neg.default(%x)", "POSITION B S 4"),
        ("%y: f32[S, B, 4] = aten.view.default(%x, [%s, %b, 4])", "TOKEN S B 4"),
        ("%y: f32[2*S - 1, 3] = aten.cumsum.default(%fars, 0)", "POSITION D 3"),
    ],
)
def test_the_check_sees_a_wrong_claim(lines: str, wrong: str) -> None:
    """The traps beside the cases: numbers tell claims that are not so."""
    made = case(lines)
    with pytest.raises(AssertionError):
        check(_claiming(made, wrong))


def _claiming(made: Case, text: str) -> Case:
    kind, _, dims = text.partition(" ")
    return dataclasses.replace(made, facts={**made.facts, made.asked: Known(Kind[kind], axes_of(dims))})


def _why(name: str) -> str:
    return TRAPS[name].why if name in TRAPS else "another exception than NotDerivable"


@pytest.mark.parametrize("name", TRAPS)
def test_what_is_not_so_is_refused(name: str) -> None:
    """Either the rules refuse it or what they say is so."""
    trap = TRAPS[name]
    check(case(trap.lines), (*WORLDS, ALONE) if trap.alone else WORLDS)


@pytest.mark.parametrize("name", CRASHES)
def test_an_unusual_op_is_no_crash(name: str) -> None:
    """It may be refused or accepted, and then what is said is so."""
    check(case(CRASHES[name]))
