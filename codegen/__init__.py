"""From a :class:`~attnc.codegen.plan.KernelPlan` to the text of a kernel: decides nothing, builds nothing."""

from __future__ import annotations
