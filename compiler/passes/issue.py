"""New operators in front of an attention."""

from __future__ import annotations

from dataclasses import dataclass

import sympy
import torch

from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.host.sizes import NoSizeValue, materialize
from attnc.compiler.lift.content import Array
from attnc.compiler.passes.place import NotRelative
from attnc.ir.graph import Graph
from attnc.ir.types import Dim, DType, TensorType, as_dim
from attnc.ir.values import Arg, Literal, Op, Value


@dataclass
class Issue:
    """Makes operators of one graph in front of ``before``. Methods raise NotRelative for a size no input carries."""

    graph: Graph
    before: Op

    def like(self, op: Op, args: tuple[Arg, ...], shape: tuple[Dim, ...]) -> Value:
        """``op`` once more, with other arguments and a result of another shape."""
        return self._create(op.name, args, tensor_type(op.result), shape, op.kwargs)

    def reshaped(self, value: Value, shape: tuple[Dim, ...]) -> Value:
        """``value`` in another shape."""
        kind = tensor_type(value)
        if kind.shape == shape:
            return value
        return self._create("aten.reshape.default", (value, tuple(map(self._size, shape))), kind, shape)

    def permuted(self, value: Value, order: tuple[int, ...]) -> Value:
        """A contiguous copy whose dimension i is ``order[i]`` of ``value``."""
        kind = tensor_type(value)
        shape = tuple(kind.shape[d] for d in order)
        turned = self._create("aten.permute.default", (value, order), kind, shape)
        kwargs: dict[str, Arg] = {"memory_format": Literal("memory_format", "contiguous_format")}
        return self._create("aten.clone.default", (turned,), kind, shape, kwargs)

    def arange(self, first: Dim, step: int, count: Dim, like: TensorType) -> Value:
        """``count`` integers ``first``, ``first + step``, … of the dtype and on the device of ``like``."""
        kwargs: dict[str, Arg] = {
            "dtype": Literal("dtype", like.dtype.value),
            "device": Literal("device", like.device),
        }
        end = as_dim(sympy.sympify(first) + step * sympy.sympify(count))
        return self._create(
            "aten.arange.start_step", (self._size(first), self._size(end), step), like, (count,), kwargs
        )

    def constant(self, name: str, content: Array, dtype: DType) -> Value:
        """A constant on the CPU with this content."""
        kind = TensorType(dtype, content.shape)
        return self.graph.add_constant(name, torch.from_numpy(content), kind, loc=self.before.loc, before=self.before)

    def _create(
        self,
        name: str,
        args: tuple[Arg, ...],
        like: TensorType,
        shape: tuple[Dim, ...],
        kwargs: dict[str, Arg] | None = None,
    ) -> Value:
        kind = TensorType(like.dtype, shape, like.device)
        return self.graph.create(name, args, (kind,), kwargs=kwargs, loc=self.before.loc, before=self.before).result

    def _size(self, dim: Dim) -> Arg:
        try:
            return materialize(self.graph, dim, self.before)
        except NoSizeValue as error:
            raise NotRelative(str(error)) from error
