"""The numerics policy: a result may be twice as far from float64 as eager is, plus four roundings.

err(x) = max|x - ref| / max|ref|; ours passes where err(ours) <= 2·err(eager) + 4·eps. The reference is the same
program with every float dtype and cast replaced by float64, parameters keeping their stored values.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16})


class Float64(TorchDispatchMode):
    """While active, every operator that names a narrower float dtype gets float64 instead."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func`` with float dtypes among its arguments widened, and any narrower result with them."""
        args, kwargs = tree_map(_wide, (args, kwargs or {}))
        return tree_map(widened, func(*args, **kwargs))


def reference(model: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
    """The model's output in float64 [the model's shape]."""
    wide = copy.deepcopy(model).double()
    with torch.no_grad(), Float64():
        output: Tensor = wide(**{name: widened(value) for name, value in inputs.items()})
    return output


@dataclass(frozen=True)
class Verdict:
    """Errors of ours and of eager against float64, and the bound they imply."""

    ours: float
    eager: float
    bound: float

    @property
    def passed(self) -> bool:
        return self.ours <= self.bound

    def __str__(self) -> str:
        word = "within" if self.passed else "OVER"
        return f"error {self.ours:.1e} (eager {self.eager:.1e}), {word} the bound {self.bound:.1e}"


def judge(ours: Tensor, eager: Tensor, ref: Tensor) -> Verdict:
    """Compare elementwise over the finite elements of ``ref``; all three have one shape.

    A result that isn't finite where eager's and the reference are has an infinite error.
    """
    finite = ref.isfinite()
    scale = ref[finite].abs().max().item() or 1.0
    both = finite & eager.isfinite()
    eager_error = (eager.double() - ref)[both].abs().max().item() / scale
    broken = bool((~ours.isfinite() & both).any())
    seen = finite & ours.isfinite()
    error = float("inf") if broken else (ours.double() - ref)[seen].abs().max().item() / scale
    return Verdict(error, eager_error, 2 * eager_error + 4 * torch.finfo(ours.dtype).eps)


def check(run: Callable[..., Tensor], model: nn.Module, inputs: Mapping[str, Tensor]) -> Verdict:
    """Judge ``run`` (the compiled model) against ``model`` in eager and in float64."""
    with torch.no_grad():
        return judge(run(**inputs), model(**inputs), reference(model, inputs))


def _wide(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value


def widened(value: Any) -> Any:
    """A float tensor as float64, anything else as it is."""
    return value.double() if isinstance(value, Tensor) and value.dtype in NARROW else value
