"""The configuration a kernel is compiled in: the first tile whose machine code passes every gate, in its better form.

Where keys and values can be read by tensor descriptors, each tile is compiled in both forms. Pointers take any layout,
so they stay unless descriptors leave registers free and cost no instructions.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any

from attnc.codegen.plan import KernelPlan
from attnc.codegen.source import Source
from attnc.codegen.targets import Capability
from attnc.codegen.triton.descriptors import describable
from attnc.codegen.triton.emitter import emit, launch
from attnc.codegen.triton.launch import Launch
from attnc.codegen.triton.tuning import Tuning, candidates
from attnc.compiler.machine.build import Binary, CompileFailure, compile_kernel
from attnc.compiler.machine.report import KernelReport, analyse
from attnc.compiler.planning.plan import op_demand, plan_attention
from attnc.ir.values import Op


@dataclass(frozen=True)
class Discarded:
    """A configuration that was compiled and not taken."""

    tuning: Tuning
    described: bool
    """Keys and values are read by tensor descriptors."""
    reason: str
    report: KernelReport | None = None
    """None where a compiler refused."""

    def as_dict(self) -> dict[str, Any]:
        """Only what JSON has."""
        report = {} if self.report is None else self.report.as_dict()
        figures = {name: value for name, value in report.items() if name in _FIGURES}
        return {"config": _config(self.tuning, self.described), "reason": self.reason, **figures}


_FIGURES = ("registers", "shared", "length", "tensor_core", "non_matrix_per_matrix", "mask_signature", "gates")
"""Of a discarded kernel's report."""


def _config(tuning: Tuning, described: bool) -> dict[str, Any]:
    """A configuration for JSON."""
    return {**dataclasses.asdict(tuning), "described": described}


@dataclass(frozen=True)
class Selected:
    """A kernel compiled for a target; where no candidate passes every gate, the one that shuts fewest."""

    plan: KernelPlan
    source: Source
    launch: Launch
    tuning: Tuning
    binary: Binary
    report: KernelReport
    discarded: tuple[Discarded, ...]

    def as_dict(self) -> dict[str, Any]:
        """The report with the configuration and those discarded: only what JSON has."""
        chosen = _config(self.tuning, self.launch.described)
        return {**self.report.as_dict(), "config": chosen, "discarded": [d.as_dict() for d in self.discarded]}


def select(op: Op, target: Capability, limit: int = 4) -> Selected:
    """Compile an ``attn.attention`` for ``target``, trying up to ``limit`` tiles.

    Raises CompileFailure where none can be compiled, ValueError where the plan has no kernel for the target.
    """
    tried: list[Selected] = []
    refused: list[Discarded] = []
    for tuning in candidates(target, op_demand(op))[:limit]:
        plan = plan_attention(op, target.name, (tuning.block_m, tuning.block_n))
        for described in (False, True) if describable(plan) else (False,):
            try:
                tried.append(_compiled(plan, target, tuning, described))
            except CompileFailure as failure:
                refused.append(Discarded(tuning, described, failure.reason))
        if any(not done.report.gates for done in tried):
            break
    if not tried:
        raise CompileFailure(target.name, "; ".join(d.reason for d in refused))
    best = functools.reduce(better, tried)
    others = [Discarded(d.tuning, d.launch.described, reason(d, best), d.report) for d in tried if d is not best]
    return dataclasses.replace(best, discarded=(*refused, *others))


def better(best: Selected, other: Selected) -> Selected:
    """The one that shuts fewer gates. Of two forms of a tile that shut as many, ``best`` unless the other takes fewer
    registers and no more instructions.
    """
    shut = len(best.report.gates) - len(other.report.gates)
    if shut or best.tuning != other.tuning:
        return other if shut > 0 else best
    saves = other.report.registers < best.report.registers and _mix(other.report) <= _mix(best.report)
    return other if saves else best


def reason(done: Selected, best: Selected) -> str:
    """Why a kernel isn't the best."""
    if done.report.gates:
        return "; ".join(f"{g.gate}: {g.reason}" for g in done.report.gates)
    return f"{_cost(done)}; {_cost(best)}"


def _cost(done: Selected) -> str:
    form = "descriptors" if done.launch.described else "pointers"
    return f"{done.report.registers} registers, {_mix(done.report)} other instructions per product by {form}"


def _mix(report: KernelReport) -> float:
    share = report.non_matrix_per_matrix
    return math.inf if share is None else share


def _compiled(plan: KernelPlan, target: Capability, tuning: Tuning, described: bool) -> Selected:
    source, how = emit(plan), launch(plan, described)
    binary = compile_kernel(source.text, how, target)
    return Selected(plan, source, how, tuning, binary, analyse(binary, target), ())
