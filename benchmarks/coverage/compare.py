"""Judges all outputs of a model by the numerics policy, with the same random numbers in every run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from benchmarks.policy import Float64, judge, widened

SEED = 0
SKEW = 0.9


@dataclass(frozen=True)
class Judged:
    """The verdict on a model's outputs, and the worst of them in words."""

    right: bool | None
    """None where no output holds a number."""
    text: str


class Reference(Float64):
    """Float64, for two kinds of operators by other means.

    Random numbers are drawn in float32, so that they're the ones eager draws; torch has no product of expert groups
    in float64.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func`` widened, or in float32 where it draws."""
        name = func._schema.name
        if name == "aten::_grouped_mm":
            return _grouped_product(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags and "scaled_dot_product" not in name:
            args, kwargs = tree_map(_narrowed, (args, kwargs or {}))
            with _default(torch.float32):
                return tree_map(widened, func(*args, **kwargs))
        return super().__torch_dispatch__(func, types, args, kwargs)


class Skewed(TorchDispatchMode):
    """A planted error: every softmax of rank three or more is taken of scores a tenth too small."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func``, on skewed scores where it is a softmax."""
        if func._schema.name in ("aten::_softmax", "aten::_safe_softmax") and args[0].dim() >= 3:
            args = (args[0] * SKEW, *args[1:])
        return func(*args, **(kwargs or {}))


def run(model: Callable[..., Any], inputs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors among a model's outputs, in order; inputs are copied, the random state is fixed."""
    torch.manual_seed(SEED)
    copied = {name: value.clone() if isinstance(value, Tensor) else value for name, value in inputs.items()}
    with torch.no_grad():
        result = model(**copied)
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]


def run_wide(model: nn.Module, inputs: Mapping[str, Any]) -> list[Tensor]:
    """The same in float64, which is also the dtype of numbers that name none."""
    wide = copy.deepcopy(model).double()
    with _default(torch.float64), Reference():
        return run(wide, {name: widened(value) for name, value in inputs.items()})


def run_skewed(model: nn.Module, inputs: Mapping[str, Any]) -> list[Tensor]:
    """The same with the planted error."""
    with Skewed():
        return run(model, inputs)


def judge_all(ours: Sequence[Tensor], eager: Sequence[Tensor], reference: Sequence[Tensor]) -> Judged:
    """Judge ours; outputs correspond by position."""
    if [x.shape for x in ours] != [x.shape for x in eager] or len(reference) != len(eager):
        return Judged(False, f"{len(ours)} outputs of other shapes than eager's {len(eager)}")
    worst = Judged(None, "no output holds a number")
    excess = -1.0
    for place, (a, b, c) in enumerate(zip(ours, eager, reference, strict=True)):
        if not a.is_floating_point():
            if not (torch.equal(a, b) or torch.equal(a, c.to(a.dtype))):
                return Judged(False, f"output {place}: integers differ from eager's")
        elif bool((c.isfinite() & b.isfinite()).any()):
            verdict = judge(a, b, c.double())
            if verdict.ours / verdict.bound > excess:
                excess = verdict.ours / verdict.bound
                worst = Judged(verdict.passed, f"output {place}: {verdict}")
    return worst


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _grouped_product(rows: Tensor, weights: Tensor, offs: Tensor, bias: None = None, out_dtype: Any = None) -> Tensor:
    """Rows [T, K] times the matrix [K, N] of their group; ``offs`` are the groups' ends, and rows past the last 0."""
    result = rows.new_zeros(rows.shape[0], weights.shape[-1])
    start = 0
    for group, end in enumerate(offs.tolist()):
        result[start:end] = rows[start:end] @ weights[group]
        start = end
    return result


def _narrowed(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype == torch.float64 else value
