"""``verify="numeric"`` of derived programs: right ones pass, one that reads a wrong page or weight does not."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from attnc.compiler.derive.capture import Captured, capture
from attnc.compiler.derive.program import DerivedProgram, program_of
from attnc.compiler.derive.streams import Pages
from attnc.compiler.derive.verify import verify_numeric
from attnc.compiler.verify import NumericError
from benchmarks.cases.decoders import decoder


@pytest.fixture(scope="module")
def captured() -> Captured:
    return capture(decoder("attnc-gpt2").make(), longest=48)


def program(captured: Captured, *stores: str) -> DerivedProgram:
    return program_of(captured, Pages(4, *stores))


def test_right_programs_pass(captured: Captured) -> None:
    verify_numeric(program(captured), captured)
    verify_numeric(program(captured, "i8", "i4"), captured)


def test_a_changed_weight_is_seen(captured: Captured) -> None:
    name = max(captured.state, key=lambda name: captured.state[name].numel())
    other = {**captured.state, name: captured.state[name] + 1e-3 * torch.randn_like(captured.state[name])}
    with pytest.raises(NumericError, match="logits of 40 tokens a step differ by"):
        verify_numeric(program(dataclasses.replace(captured, state=other)), captured)


@pytest.mark.parametrize("stores", [(), ("i8", "i8")])
def test_a_row_that_reads_its_neighbours_is_seen(captured: Captured, stores: tuple[str, ...]) -> None:
    """Only in steps of several tokens, so that prefill and decode differ."""
    broken = program(captured, *stores)
    step = broken.step

    def mixed(ids: torch.Tensor, *rest: object) -> torch.Tensor:
        logits = step(ids, *rest)  # type: ignore[arg-type]
        return logits + 1e-3 * logits.roll(1, 0) if len(ids) > 20 else logits

    broken.step = mixed  # type: ignore[method-assign,assignment]
    with pytest.raises(NumericError, match="tokens a step differ"):
        verify_numeric(broken, captured)
