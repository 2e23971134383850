"""A model as a module that ``torch.export`` can trace: ``forward`` runs its nodes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attnc.compiler.frontends.onnx.errors import NoForm, OnnxError
from attnc.compiler.frontends.onnx.grouping import boundary, grouped, names_read
from attnc.compiler.frontends.onnx.known import MOST_ELEMENTS, Constant, Sizes, materialise
from attnc.compiler.frontends.onnx.model import Model, identifiers
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.regions import Untyped, call_region
from attnc.compiler.frontends.onnx.trace import MISSING, UNTYPED, Tracer
from attnc.compiler.frontends.torch import private
from attnc.compiler.host.known import holds_content


@dataclass(eq=False)
class Trace:
    """What a run found out. An object of its own: ``torch.export`` puts a module's attributes back after tracing."""

    left: dict[Node, str] = field(default_factory=dict)
    """Nodes without a form in torch, with the reason."""
    missing: list[str] = field(default_factory=list)
    """Outputs of the model that nothing made, because of these."""
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The shape of each float32 value, sizes as they were traced."""


class OnnxModule(nn.Module):
    """Takes the model's inputs by keyword, as :attr:`arguments` names them, and returns the tuple of its outputs.

    Weights are parameters; constants whose content passes may read (masks, tables of positions) are buffers. After a
    run ``trace`` says which nodes have no form in torch; until :meth:`leave` is told, outputs they lead to are zeros.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.arguments = identifiers([port.name for port in model.inputs])
        """The keyword of each input, by its name in the file."""
        self.trace = Trace()
        self.regional: frozenset[Node] = frozenset()
        """Nodes that run in onnxruntime."""
        self._items: Sequence[Node | tuple[Node, ...]] = model.nodes
        self._readers: dict[str, list[Node]] = {}
        for node in model.nodes:
            for name in names_read(node):
                self._readers.setdefault(name, []).append(node)
        self._values: dict[str, Any] = {}
        used = {*self._readers, *(port.name for port in model.outputs)}
        names = identifiers(model.initializers, taken=dir(self))
        for name in model.initializers:
            if name in used:
                self._hold(name, names[name])
        self.forward = _with_parameters(self._run, self.arguments.values())

    def _hold(self, name: str, attribute: str) -> None:
        try:
            tensor = self.model.tensor(name)
        except NoForm:
            self._values[name] = MISSING
            return
        if tensor.numel() <= MOST_ELEMENTS:
            self._values[name] = Constant(tensor)
        elif tensor.is_floating_point() and not holds_content(tensor):
            self.register_parameter(attribute, nn.Parameter(tensor, requires_grad=False))
            self._values[name] = attribute
        else:
            self.register_buffer(attribute, tensor)
            self._values[name] = attribute

    def _run(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Run the nodes. Raises OnnxError for a model that is wrong."""
        values: dict[str, Any] = {
            name: getattr(self, held) if isinstance(held, str) else held for name, held in self._values.items()
        }
        values |= {name: inputs[keyword] for name, keyword in self.arguments.items()}
        self._relate(inputs)
        tracer = Tracer(self.model.versions, self.model.name)
        self.trace.left, self.trace.missing = tracer.left, []
        tracer.run(self._items, values, self._call_group)
        self.trace.shapes = {name: tuple(value.shape) for name, value in values.items() if _is_float(value)}
        return tuple(self._output(port.name, values) for port in self.model.outputs)

    def leave(self, nodes: Collection[Node]) -> None:
        """Run these nodes in onnxruntime from now on, beside those that already are."""
        self.regional |= frozenset(nodes)
        self._items = grouped(self.model.nodes, self.regional)

    def _call_group(self, group: Sequence[Node], values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The results of a group that others read; MISSING where something it reads is."""
        taken, given = boundary(group, self._readers, [port.name for port in self.model.outputs])
        found = [values[name] for name in taken if name in values]
        if any(value is MISSING or value is UNTYPED for value in found):
            return dict.fromkeys(given, MISSING)
        try:
            return dict(zip(given, call_region(self.model, group, given, values), strict=True))
        except Untyped as error:
            return {name: UNTYPED if name == str(error) else MISSING for name in given}

    def _output(self, name: str, values: Mapping[str, Any]) -> Tensor:
        if name not in values:
            raise OnnxError(f"importing {self.model.name}: no node makes the output {name!r}")
        value = values[name]
        if value is MISSING or value is UNTYPED:
            self.trace.missing.append(name)
            return torch.zeros(())
        made = materialise(value)
        return made.clone() if isinstance(value, Constant) else made

    def _relate(self, inputs: Mapping[str, Tensor]) -> None:
        """Tell the tracer that dimensions of one name are equal."""
        first: dict[str, Any] = {}
        for port in self.model.inputs:
            for place, dim in enumerate(port.shape or ()):
                if isinstance(dim, str):
                    length = inputs[self.arguments[port.name]].shape[place]
                    private.check_equal(first.setdefault(dim, length), length)


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor | Constant | Sizes) and value.dtype == torch.float32


def _with_parameters(
    run: Callable[[Mapping[str, Tensor]], tuple[Tensor, ...]], names: Iterable[str]
) -> Callable[..., tuple[Tensor, ...]]:
    """A function with a parameter for each input, so that ``torch.export`` knows them by name."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])

    def forward(*args: Tensor, **kwargs: Tensor) -> tuple[Tensor, ...]:
        return run(signature.bind(*args, **kwargs).arguments)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    return forward
