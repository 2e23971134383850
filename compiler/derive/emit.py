"""Small ops around one attention, in the graph of a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from attnc.compiler.derive.site import SiteFacts
from attnc.compiler.fuse.layout import tensor_type
from attnc.ir.attention import KEY
from attnc.ir.graph import Graph
from attnc.ir.types import Dim, TensorType, Type
from attnc.ir.values import Arg, Literal, Value


@dataclass
class Emit:
    """Makes ops with the source line of an attention."""

    graph: Graph
    facts: SiteFacts

    def op(self, name: str, args: tuple[Arg, ...], kind: Type, **attrs: object) -> Value:
        """An op with one result."""
        return self.graph.create(name, args, (kind,), attrs=attrs, loc=self.facts.op.loc).results[0]

    def shaped(self, name: str, args: tuple[Arg, ...], like: Value, shape: tuple[Dim, ...]) -> Value:
        """An op whose result is like a tensor, but of another shape."""
        kind = tensor_type(like)
        return self.op(name, args, TensorType(kind.dtype, shape, kind.device))

    def dropped(self, value: Value, axes: tuple[str, ...]) -> Value:
        """Without the batch axis."""
        if self.facts.batch not in axes:
            return value
        place, shape = axes.index(self.facts.batch), tensor_type(value).shape
        return self.shaped("aten.squeeze.dim", (value, place), value, (*shape[:place], *shape[place + 1 :]))

    def restored(self, value: Value, axes: tuple[str, ...]) -> Value:
        """With the batch axis again."""
        if self.facts.batch not in axes:
            return value
        place, shape = axes.index(self.facts.batch), tensor_type(value).shape
        return self.shaped("aten.unsqueeze.default", (value, place), value, (*shape[:place], 1, *shape[place:]))

    def rows(self, value: Value, axes: tuple[str, ...], last: str) -> Value:
        """[T, heads, features] of keys or values: the key axis first, other axes flattened in their order."""
        value = self.dropped(value, axes)
        left = [a for a in axes if a != self.facts.batch]
        outer = [a for a in left if a not in (KEY, last)]
        order = tuple(left.index(a) for a in (KEY, *outer, last))
        shape = tuple(tensor_type(value).shape[i] for i in order)
        if order != tuple(range(len(order))):
            value = self.shaped("aten.permute.default", (value, order), value, shape)
        if len(outer) == 1:
            return value
        flat = (shape[0], math.prod(n for n in shape[1:-1] if isinstance(n, int)), shape[-1])
        if not outer:
            return self.shaped("aten.unsqueeze.default", (value, 1), value, flat)
        return self.shaped("aten.flatten.using_ints", (value, 1, len(outer)), value, flat)

    def swapped(self, value: Value, first: int, second: int) -> Value:
        """With two dimensions swapped."""
        if first == second:
            return value
        shape = list(tensor_type(value).shape)
        shape[first], shape[second] = shape[second], shape[first]
        return self.shaped("aten.transpose.int", (value, first, second), value, tuple(shape))

    def dense(self, value: Value) -> Value:
        """A row-major copy, as the views of an attention's result expect."""
        kwargs: dict[str, Arg] = {"memory_format": Literal("memory_format", "contiguous_format")}
        kind = TensorType(tensor_type(value).dtype, tensor_type(value).shape, tensor_type(value).device)
        return self.graph.create("aten.clone.default", (value,), (kind,), kwargs=kwargs, loc=self.facts.op.loc).result

    def part(self, value: Value, dim: int, lo: int, hi: int) -> Value:
        """Elements lo … hi of one dimension."""
        shape = tensor_type(value).shape
        if (lo, hi) == (0, shape[dim]):
            return value
        return self.shaped("aten.slice.Tensor", (value, dim, lo, hi), value, (*shape[:dim], hi - lo, *shape[dim + 1 :]))

    def joined(self, values: list[Value], dim: int) -> Value:
        """Values one after the other along a dimension."""
        if len(values) == 1:
            return values[0]
        shape = tensor_type(values[0]).shape
        length = sum(n for n in (tensor_type(v).shape[dim] for v in values) if isinstance(n, int))
        return self.shaped(
            "aten.cat.default", (tuple(values), dim), values[0], (*shape[:dim], length, *shape[dim + 1 :])
        )
