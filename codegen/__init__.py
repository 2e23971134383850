"""From a :class:`~attnc.codegen.plan.KernelPlan` to the text of a kernel. Decides nothing, builds nothing, runs nothing."""

from __future__ import annotations
