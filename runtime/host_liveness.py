"""When the registers of a host program die."""

from __future__ import annotations

from dataclasses import replace

from attnc.runtime.host_check import read, written
from attnc.runtime.host_program import HostProgram, Step
from attnc.runtime.host_steps import leaves


def with_frees(program: HostProgram) -> tuple[Step, ...]:
    """The steps of a program, each with the registers that no later one reads."""
    still = {register for leaf in leaves(program.outputs) for register in read(leaf, program)}
    still |= set(range(len(program.inputs)))
    steps = []
    for step in reversed(program.steps):
        args = (*step.args, *(arg for _, arg in step.kwargs))
        touched = {register for leaf in leaves(args) for register in read(leaf, program)} | set(written(step))
        steps.append(replace(step, frees=tuple(sorted(touched - still))))
        still |= touched
    return tuple(reversed(steps))
