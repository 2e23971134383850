"""The source of a plan, in the language of its target."""

from __future__ import annotations

from attnc.codegen.cpp import emitter as cpp
from attnc.codegen.plan import KernelPlan
from attnc.codegen.source import Source
from attnc.codegen.targets import capability
from attnc.codegen.triton import emitter as triton


def emit(plan: KernelPlan) -> Source:
    """The source of ``plan``. Raises ValueError where its target is unknown or asks for what a kernel has not."""
    return cpp.emit(plan) if capability(plan.target).language == "c++" else triton.emit(plan)
