"""A model as a module that ``torch.export`` can trace: ``forward`` runs its nodes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attnc.compiler.frontends.onnx.errors import NoForm, OnnxError
from attnc.compiler.frontends.onnx.known import MOST_ELEMENTS, Constant, materialise
from attnc.compiler.frontends.onnx.model import Model, identifiers
from attnc.compiler.frontends.onnx.trace import MISSING, Tracer
from attnc.compiler.host.known import holds_content


class OnnxModule(nn.Module):
    """Takes the model's inputs by keyword, as :attr:`arguments` names them, and returns the tuple of its outputs.

    Weights are parameters; constants whose content passes may read (masks, tables of positions) are buffers. After a
    trace ``left`` has the nodes without a form in torch, with the reason.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.arguments = identifiers([port.name for port in model.inputs])
        """The keyword of each input, by its name in the file."""
        self.left: dict[Any, str] = {}
        self._values: dict[str, Any] = {}
        used = {name for node in model.nodes for name in node.inputs} | {port.name for port in model.outputs}
        used |= {name for node in model.nodes for graph in _graphs(node) for name in _names_in(graph)}
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
        tracer.run(self.model.nodes, values)
        self.left = tracer.left
        return tuple(self._output(port.name, values) for port in self.model.outputs)

    def _output(self, name: str, values: Mapping[str, Any]) -> Tensor:
        if name not in values:
            raise OnnxError(f"importing {self.model.name}: no node makes the output {name!r}")
        value = values[name]
        if value is MISSING:
            raise NoForm(f"the output {name!r} has no form in torch")
        made = materialise(value)
        return made.clone() if isinstance(value, Constant) else made

    def _relate(self, inputs: Mapping[str, Tensor]) -> None:
        """Tell the tracer that dimensions of one name are equal."""
        first: dict[str, Any] = {}
        for port in self.model.inputs:
            for place, dim in enumerate(port.shape or ()):
                if isinstance(dim, str):
                    length = inputs[self.arguments[port.name]].shape[place]
                    torch._check(first.setdefault(dim, length) == length)


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


def _graphs(node: Any) -> list[Any]:
    return [value for value in node.attributes.values() if hasattr(value, "node") and hasattr(value, "initializer")]


def _names_in(graph: Any) -> set[str]:
    """Every value that nodes of a graph, or of graphs within it, read."""
    found = {name for node in graph.node for name in node.input} | {info.name for info in graph.output}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _names_in(attribute.g)
    return found
