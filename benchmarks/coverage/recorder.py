"""Records one eager forward as a data-flow graph of ATen operators, views and in-place writes included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass(eq=False, slots=True)
class Node:
    """One operator call, or a tensor that no recorded call made."""

    name: str
    """The operator without namespace and overload, such as ``bmm``; ``weight`` or ``data`` for a tensor."""
    rank: int = 0
    """Dimensions of its first tensor result."""
    order: int = 0
    """Its place among all nodes."""
    operands: list[Node] = field(default_factory=list, repr=False)
    """The makers of its tensor arguments, in order."""
    writers: list[Node] = field(default_factory=list, repr=False)
    """Calls that have since written, through another view, to the memory of an argument."""
    users: list[Node] = field(default_factory=list, repr=False)

    @property
    def sources(self) -> list[Node]:
        return self.operands + self.writers


class Recorder(TorchDispatchMode):
    """While active, ``nodes`` grows by each call and each tensor that no recorded call made."""

    def __init__(self, weights: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self._makers: dict[int, Node] = {}
        self._writers: dict[int, Node] = {}
        self._alive: list[Tensor] = []  # an id is a tensor's only while the tensor lives
        for weight in weights:
            self._made(weight, self._node("weight", weight.dim()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func`` and record it, unless it makes no tensor."""
        tensors = _tensors((args, kwargs or {}))
        operands = [self._maker(tensor) for tensor in tensors]
        writers = [w for tensor, maker in zip(tensors, operands, strict=True) if (w := self._since(tensor, maker))]
        result = func(*args, **(kwargs or {}))
        made = _tensors(result)
        if made:
            node = self._node(func._schema.name.split("::")[-1], made[0].dim())
            node.operands, node.writers = operands, writers
            for source in node.sources:
                source.users.append(node)
            for tensor in made:
                self._made(tensor, node)
            if func._schema.is_mutable and args and isinstance(args[0], Tensor):
                self._writers[_memory(args[0])] = node
        return result

    def makers(self, value: Any) -> list[Node]:
        """The makers of the tensors in a result, and who has written to their memory since."""
        tensors = _tensors(value)
        made = [self._maker(tensor) for tensor in tensors]
        return made + [w for tensor, maker in zip(tensors, made, strict=True) if (w := self._since(tensor, maker))]

    def _maker(self, tensor: Tensor) -> Node:
        return self._makers.get(id(tensor)) or self._made(tensor, self._node("data", tensor.dim()))

    def _node(self, name: str, rank: int) -> Node:
        node = Node(name, rank, len(self.nodes))
        self.nodes.append(node)
        return node

    def _made(self, tensor: Tensor, node: Node) -> Node:
        self._makers[id(tensor)] = node
        self._alive.append(tensor)
        return node

    def _since(self, tensor: Tensor, maker: Node) -> Node | None:
        """The last call that wrote to the tensor's memory, if that was after ``maker``."""
        writer = self._writers.get(_memory(tensor))
        return writer if writer is not None and writer.order > maker.order else None


class Recording(NamedTuple):
    """One forward."""

    nodes: list[Node]
    """In order of execution."""
    results: list[Node]
    """The makers of the model's outputs."""


def record(model: nn.Module, inputs: Mapping[str, Any]) -> Recording:
    """Run a model once, without gradients."""
    recorder = Recorder(model.parameters())
    with torch.no_grad(), recorder:
        result = model(**inputs)
    return Recording(recorder.nodes, recorder.makers(result))


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
