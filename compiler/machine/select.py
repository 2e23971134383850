"""The configuration a kernel is compiled in: the first candidate whose machine code passes every gate."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from attnc.codegen.plan import KernelPlan
from attnc.codegen.source import Source
from attnc.codegen.targets import Capability
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
    reason: str


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
        discarded = [{"config": dataclasses.asdict(d.tuning), "reason": d.reason} for d in self.discarded]
        return {**self.report.as_dict(), "config": dataclasses.asdict(self.tuning), "discarded": discarded}


def select(op: Op, target: Capability, limit: int = 4) -> Selected:
    """Compile an ``attn.attention`` for ``target``, trying up to ``limit`` configurations.

    Raises CompileFailure where none can be compiled, ValueError where the plan has no kernel for the target.
    """
    tried: list[Selected] = []
    discarded: list[Discarded] = []
    for tuning in candidates(target, op_demand(op))[:limit]:
        try:
            done = _compiled(op, target, tuning)
        except CompileFailure as failure:
            discarded.append(Discarded(tuning, failure.reason))
            continue
        tried.append(done)
        if not done.report.gates:
            break
        discarded.append(Discarded(tuning, "; ".join(f"{g.gate}: {g.reason}" for g in done.report.gates)))
    if not tried:
        raise CompileFailure(target.name, "; ".join(d.reason for d in discarded))
    best = min(tried, key=lambda done: len(done.report.gates))
    return dataclasses.replace(best, discarded=tuple(d for d in discarded if d.tuning != best.tuning))


def _compiled(op: Op, target: Capability, tuning: Tuning) -> Selected:
    plan = plan_attention(op, target.name, (tuning.block_m, tuning.block_n))
    source, how = emit(plan), launch(plan)
    binary = compile_kernel(source.text, how, target)
    return Selected(plan, source, how, tuning, binary, analyse(binary, target), ())
