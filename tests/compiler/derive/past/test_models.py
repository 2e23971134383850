"""Models that keep keys and values of their own: derived and equal to full recompute, or refused."""

from __future__ import annotations

import pytest

from attnc.compiler.derive.entry import derive_program
from attnc.compiler.derive.refusal import NotDerivable
from attnc.compiler.derive.streams import Pages
from benchmarks.cases.cached import CARRIED, TRAPS, Carried, Trap, carried
from benchmarks.cases.cached.net import LIMIT
from benchmarks.derived import outcome


def derived(case: Carried) -> None:
    model = case.carry(case.decoder.make()).eval()
    program = derive_program(
        model, max_length=case.decoder.limit, token_input="input_ids", cache=case.cache(model), pages=Pages(16)
    )
    assert {v.name for v in program.graphs.step.inputs}.isdisjoint({"past", "earlier"})
    steps = min(32, program.max_length - 30)
    found = outcome(case.decoder, steps=steps, program=program)
    assert found.verdict.passed, found
    assert found.comparable >= 0.9 * found.steps, found
    assert found.different == 0, found


def refused(trap: Trap) -> None:
    assert carried(trap.twin)
    with pytest.raises(NotDerivable) as caught:
        derive_program(trap.make(), max_length=LIMIT)
    found = caught.value
    assert trap.reason in found.reason.lower(), found
    if trap.located:
        assert found.op is not None and found.op.loc.file and found.op.loc.line, found


@pytest.mark.slow
@pytest.mark.parametrize("case", CARRIED, ids=[c.name for c in CARRIED])
def test_every_cache_is_taken_out(case: Carried) -> None:
    derived(case)


@pytest.mark.slow
@pytest.mark.parametrize("trap", TRAPS, ids=[t.name for t in TRAPS])
def test_every_cache_that_stays(trap: Trap) -> None:
    refused(trap)
