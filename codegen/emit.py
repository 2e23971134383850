"""The source of a plan, in the language of its target."""

from __future__ import annotations

from attnc.codegen.cpp import emitter as cpp
from attnc.codegen.cpp import paged as cpp_paged
from attnc.codegen.paged_plan import PagedPlan
from attnc.codegen.plan import KernelPlan
from attnc.codegen.source import Source
from attnc.codegen.targets import capability
from attnc.codegen.triton import emitter as triton
from attnc.codegen.triton import paged as triton_paged


def emit(plan: KernelPlan) -> Source:
    """The source of ``plan``. Raises ValueError where its target is unknown or asks for what a kernel has not."""
    return cpp.emit(plan) if capability(plan.target).language == "c++" else triton.emit(plan)


def emit_paged(plan: PagedPlan) -> Source:
    """The source of a paged plan. Raises ValueError as :func:`emit` does."""
    cpp_kernels = capability(plan.attention.target).language == "c++"
    return cpp_paged.emit_paged(plan) if cpp_kernels else triton_paged.emit_paged(plan)
