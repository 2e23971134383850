"""Run a program compiled and in eager, judge it by the numerics policy, and say what was fused."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from attnc.compiler.backend import backend
from attnc.compiler.report import Report, reports
from benchmarks.cases.spellings import Case
from benchmarks.cases.transformers import Family
from benchmarks.policy import Float64, Verdict, judge, widened

LENGTHS = ((3, 17), (2, 33), (4, 5), (2, 64), (3, 40))
"""(batch, length) pairs of a dynamic model; the first is the one compiled with."""


@dataclass(frozen=True)
class Outcome:
    """What one program did."""

    verdicts: tuple[Verdict, ...]
    reports: tuple[Report, ...]

    @property
    def right(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def fused(self) -> int:
        return sum(report.fused for report in self.reports)

    @property
    def codes(self) -> list[str]:
        """Codes of the softmaxes that are left."""
        return [site.code for report in self.reports for site in report.sites if not site.fused]

    def __str__(self) -> str:
        left = f", left: {', '.join(self.codes)}" if self.codes else ""
        worst = max(self.verdicts, key=lambda v: v.ours / v.bound, default="no float output")
        return f"{self.fused} fused{left}; {worst}"


def run_function(function: Callable[..., Any], inputs: Sequence[Tensor], host: str = "aten", seed: int = 5) -> Outcome:
    """Compile and run a function without gradients; the random state is ``seed`` before each run."""
    torch._dynamo.reset()
    before = len(reports())
    compiled = torch.compile(function, backend=backend(host=host), dynamic=False)
    ours, eager = (_called(f, inputs, seed) for f in (compiled, function))
    with Float64():
        wide = _called(function, [widened(x) for x in inputs], seed)
    return Outcome(_verdicts(ours, eager, wide), tuple(reports()[before:]))


def run_spelling(case: Case, dtype: torch.dtype, sizes: Sequence[tuple[int, int]], host: str = "aten") -> Outcome:
    """Compile a spelling once and run it at each (batch, length); both are marked dynamic where there are several."""
    before = len(reports())
    marked = _marked(case, backend(host=host), several=len(sizes) > 1)
    verdicts: list[Verdict] = []
    for seed, (batch, length) in enumerate(sizes):
        inputs = case.inputs(dtype, seed, batch, length)
        ours, eager = (_called(f, inputs, seed) for f in (marked, case.run))
        with Float64():
            wide = _called(case.run, [widened(x) for x in inputs], seed)
        verdicts += _verdicts(ours, eager, wide)
    return Outcome(tuple(verdicts), tuple(reports()[before:]))


def torch_compilations(case: Case, dtype: torch.dtype, sizes: Sequence[tuple[int, int]]) -> int:
    """How often torch itself compiles a spelling for these sizes: a strided slice guards what it divides by."""
    counter = CompileCounterWithBackend("eager")
    marked = _marked(case, counter, several=len(sizes) > 1)
    for seed, (batch, length) in enumerate(sizes):
        _called(marked, case.inputs(dtype, seed, batch, length), seed)
    return int(counter.frame_count)


def _marked(case: Case, compiler: Any, several: bool) -> Callable[..., Any]:
    """The compiled spelling; it marks batch and length dynamic where there are ``several`` sizes."""
    torch._dynamo.reset()
    compiled = torch.compile(case.run, backend=compiler, dynamic=None if several else False)

    def marked(*inputs: Tensor) -> Any:
        for tensor in inputs if several else ():
            torch._dynamo.maybe_mark_dynamic(tensor, (0, 2))
        return compiled(*inputs)

    return marked


def run_model(
    family: Family, implementation: str = "eager", dtype: torch.dtype = torch.float32, host: str = "aten"
) -> Outcome:
    """Compile a model with its sizes marked dynamic and run it at :data:`LENGTHS` without gradients."""
    torch._dynamo.reset()
    before = len(reports())
    model = family.model(implementation, dtype)
    compiled = torch.compile(model, backend=backend(host=host))
    wide = copy.deepcopy(model).double()
    verdicts: list[Verdict] = []
    with torch.no_grad():
        for seed, (batch, length) in enumerate(LENGTHS):
            inputs = family.inputs(batch, length, dtype, seed)
            if seed == 0:
                _mark_dynamic(family, inputs)
            ours, eager = family.output(compiled(**inputs)), family.output(model(**inputs))
            with Float64():
                reference = family.output(wide(**{name: widened(x) for name, x in inputs.items()}))
            verdicts.append(judge(ours, eager, reference))
    return Outcome(tuple(verdicts), tuple(reports()[before:]))


def run_training(family: Family, implementation: str = "eager", host: str = "aten") -> Outcome:
    """Compare the loss and every parameter's gradient with eager's, in float32."""
    torch._dynamo.reset()
    before = len(reports())
    model = family.model(implementation)
    inputs = family.inputs(3, 17)
    ours = _gradients(model, torch.compile(model, backend=backend(host=host)), family, inputs)
    eager = _gradients(model, model, family, inputs)
    wide_model = copy.deepcopy(model).double()
    with Float64():
        wide = _gradients(wide_model, wide_model, family, {name: widened(x) for name, x in inputs.items()})
    return Outcome(_verdicts(ours, eager, _vanishing_as_zero(wide)), tuple(reports()[before:]))


def _vanishing_as_zero(gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Gradients that are 0 but for float64 rounding, as 0: they are then compared absolutely.

    The bias of a key projection has such a gradient: it adds one number to all scores of a row.
    """
    largest = max(g.abs().max().item() for g in gradients)
    return tuple(g if g.abs().max().item() > largest * 2.0**-40 else torch.zeros_like(g) for g in gradients)


def _gradients(
    model: nn.Module, call: Callable[..., Any], family: Family, inputs: dict[str, Tensor]
) -> tuple[Tensor, ...]:
    """The loss, and the gradient of each parameter that has one.

    The loss weighs every element of the output differently: a mean square of what a layer norm made hardly changes
    with any parameter before it.
    """
    model.zero_grad(set_to_none=True)
    output = family.output(call(**inputs))
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(7)).to(output.dtype)
    loss = (output * weights).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return (loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None))


def _mark_dynamic(family: Family, inputs: dict[str, Tensor]) -> None:
    for name, axes in family.dynamic.items():
        for axis in axes:
            torch._dynamo.mark_dynamic(inputs[name], axis)


def _called(function: Callable[..., Any], inputs: Sequence[Tensor], seed: int) -> tuple[Tensor, ...]:
    torch.manual_seed(seed)
    with torch.no_grad():
        result = function(*(x.clone() for x in inputs))
    return result if isinstance(result, tuple) else (result,)


def _verdicts(ours: Sequence[Tensor], eager: Sequence[Tensor], wide: Sequence[Tensor]) -> tuple[Verdict, ...]:
    """One verdict for each float result. Raises AssertionError where an integer result differs."""
    verdicts = []
    for a, b, c in zip(ours, eager, wide, strict=True):
        if a.is_floating_point():
            verdicts.append(judge(a, b, c.double()))
        elif not torch.equal(a, b):
            raise AssertionError("an integer result differs from eager's")
    return tuple(verdicts)
