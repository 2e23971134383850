"""Runs emitted Triton kernels in the interpreter, beside the C++ kernels of the same plans."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from codegen_build import Kernel, compile_plan

from attnc.codegen.plan import KernelPlan
from attnc.codegen.triton.emitter import emit
from tests.triton.worker import POISONED, WorkerError, interpreted

LATER = pytest.mark.parametrize("build", ["c++", pytest.param("triton", marks=pytest.mark.slow)], indirect=True)
"""For a test that takes the interpreter several seconds."""


def both(name: str, values: Sequence[Any], soon: Sequence[Any]) -> pytest.MarkDecorator:
    """``build`` and ``name``: every value in C++; in Triton's interpreter ``soon``, the others among the slow tests."""
    slow = [pytest.param("triton", value, marks=pytest.mark.slow) for value in values if value not in soon]
    each = [*(("c++", value) for value in values), *(("triton", value) for value in soon), *slow]
    return pytest.mark.parametrize(("build", name), each, indirect=["build"])


@dataclass(frozen=True)
class Interpreted:
    """A plan's Triton kernel; called as a :class:`Kernel` is. ``twin``: the C++ kernel of the same plan."""

    plan: KernelPlan
    text: str
    twin: Kernel | None

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        side: Sequence[torch.Tensor] = (),
        sizes: Sequence[int] = (),
        threads: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(out, lse), both filled with NaN before the kernel runs; ``threads`` is C++'s."""
        out, lse = interpreted().run(self.text, "poisoned", q, k, v, list(side), list(sizes))
        return out, lse

    def refuses(self, cpp: str, triton: str) -> AbstractContextManager[pytest.ExceptionInfo[WorkerError]]:
        """A call inside raises ValueError with ``triton`` in its text."""
        return pytest.raises(WorkerError, match=f"ValueError: .*{triton}")


@dataclass(frozen=True)
class Build:
    """Makes the kernel of a plan, in one language. What is made once is kept."""

    language: Literal["c++", "triton"]
    folder: Path

    def __call__(self, plan: KernelPlan, level: str = "-O3") -> Kernel | Interpreted:
        """``level``: g++'s optimisation, where only the result matters."""
        native = compile_plan(plan, self.folder, level)
        return native if self.language == "c++" else self.alone(plan, native)

    def alone(self, plan: KernelPlan, twin: Kernel | None = None) -> Interpreted:
        """The Triton kernel, without a C++ one beside it where that takes too long to compile."""
        return Interpreted(plan, emit(replace(plan, target="triton-interpret")).text + POISONED, twin)
