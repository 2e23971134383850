"""The numerics policy: a result may be twice as far from float64 as eager is, plus four roundings.

err(x) = max|x - ref| / max|ref|; ours passes where err(ours) <= 2·err(eager) + 4·eps. The reference is the same
program with every float dtype and cast replaced by float64, parameters keeping their stored values.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from attnc.compiler.inspection.policy import Verdict, judge

__all__ = ["Float64", "Verdict", "check", "judge", "reference", "widened"]

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


def check(run: Callable[..., Tensor], model: nn.Module, inputs: Mapping[str, Tensor]) -> Verdict:
    """Judge ``run`` (the compiled model) against ``model`` in eager and in float64."""
    with torch.no_grad():
        return judge(run(**inputs), model(**inputs), reference(model, inputs))


def _wide(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value


def widened(value: Any) -> Any:
    """A float tensor as float64, anything else as it is."""
    return value.double() if isinstance(value, Tensor) and value.dtype in NARROW else value
