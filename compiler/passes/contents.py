"""Integer and boolean tensors whose elements are known when compiling: constants, and what is computed from them alone.

The operators are executed, so a content is exact. Floats are left out: another host may round them otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from attnc.compiler.frontends.torch.arguments import to_fx
from attnc.compiler.frontends.torch.names import resolve
from attnc.compiler.lift.content import Array, to_numpy
from attnc.compiler.lift.rules import RULES
from attnc.ir.graph import Graph
from attnc.ir.types import DType, TensorType, TupleType, Type
from attnc.ir.values import Op, Value

MOST_ELEMENTS = 1 << 22
"""Larger tensors are not computed: 2048 positions squared."""
PURE = frozenset(RULES) | frozenset(
    f"aten.{name}" for name in ("meshgrid.indexing", "meshgrid.default", "sum.dim_IntList", "sum.default")
)
"""Operators that do nothing but compute, the same each time."""


@dataclass
class Contents:
    """Contents of one graph's values, each computed once."""

    graph: Graph
    _known: dict[Value, Any] = field(default_factory=dict)

    def of(self, value: Value) -> Array | None:
        """The elements of an integer or boolean tensor of fixed shape; None where they depend on an input."""
        found = self._computed(value)
        return to_numpy(found) if isinstance(found, torch.Tensor) else None

    def _computed(self, value: Value) -> Any:
        if value not in self._known:
            op = value.op
            self._known[value] = self._run(op) if op is not None and _countable(value.type) else None
        return self._known[value]

    def _run(self, op: Op) -> Any:
        if op.name == "ir.constant":
            payload = self.graph.constants.get(str(op.attrs["name"]))
            return None if to_numpy(payload) is None else torch.as_tensor(payload)
        if op.name not in PURE or any(self._computed(v) is None for v in op.operands):
            return None
        args = [to_fx(arg, self._computed) for arg in op.args]
        with torch.no_grad():
            return resolve(op.name)(*args, **{key: to_fx(arg, self._computed) for key, arg in op.kwargs.items()})


def _countable(type: Type) -> bool:
    """Whether all elements are integers or truth values, of a number that is known and not too large."""
    if isinstance(type, TupleType):
        return all(map(_countable, type.elements))
    if not isinstance(type, TensorType) or not (type.dtype.is_int or type.dtype is DType.B1):
        return False
    count = 1
    for length in type.shape:
        if not isinstance(length, int):
            return False
        count *= length
    return count <= MOST_ELEMENTS
