"""What SRC names as a captured graph with real inputs, one for each input of the graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnc.compiler.cli.errors import CliError
from attnc.compiler.cli.source import Subject

if TYPE_CHECKING:
    from attnc.ir.graph import Graph


@dataclass(frozen=True)
class Opened:
    """A graph before any pass, its inputs in order, and the user's name of each input that is data, not a weight."""

    graph: Graph
    inputs: list[Any]
    names: dict[str, str]


def open_subject(subject: Subject, example: Path | None) -> Opened:
    """Capture the subject. ``example`` holds the inputs of a graph in text form, which has none of its own.

    Raises CliError where such a graph comes without, and whatever ``torch.export`` raises for a model.
    """
    import torch
    from torch.utils import _pytree as pytree

    from attnc.compiler.frontends.torch.importer import import_graph
    from attnc.compiler.hints import user_names
    from attnc.compiler.host.exported import capture_exported
    from attnc.ir.graph import Graph

    if isinstance(subject.model, Graph):
        return _open_graph(subject.name, subject.model, example)
    if isinstance(subject.model, Path):
        return _open_onnx(subject)
    program = torch.export.export(
        subject.model, subject.args, subject.kwargs, dynamic_shapes=subject.dynamic_shapes, strict=False
    )
    exported = capture_exported(program)
    graph = import_graph(exported.graph_module, name=subject.name)
    state, leaves = exported.signature.state, iter(pytree.tree_leaves((subject.args, subject.kwargs)))
    inputs = [state[value.name] if value.name in state else next(leaves) for value in graph.inputs]
    known = user_names(graph)
    names = {value.name: known.get(value.name, value.name) for value in graph.inputs if value.name not in state}
    return Opened(graph, inputs, names)


def _open_onnx(subject: Subject) -> Opened:
    from torch.utils import _pytree as pytree

    from attnc.compiler.frontends.onnx.capture import capture_onnx
    from attnc.compiler.frontends.onnx.importer import import_onnx
    from attnc.compiler.frontends.torch.importer import import_graph

    assert isinstance(subject.model, Path)
    imported = import_onnx(subject.model, inputs=subject.kwargs or None, sizes=subject.dynamic_shapes)
    captured = capture_onnx(imported)
    graph = import_graph(captured.exported.graph_module, name=subject.name)
    state = captured.exported.signature.state
    leaves = iter(pytree.tree_leaves(imported.examples))
    inputs = [state[value.name] if value.name in state else next(leaves) for value in graph.inputs]
    names = {argument: name for name, argument in captured.inputs.items()}
    data = [value.name for value in graph.inputs if value.name not in state]
    return Opened(graph, inputs, dict(zip(data, names.values(), strict=True)))


def _open_graph(src: str, graph: Graph, example: Path | None) -> Opened:
    from attnc.compiler.cli.execute import bind, constants
    from attnc.compiler.cli.inputs import read_npz

    if example is None:
        raise CliError(f"{src}: a graph in text form has no inputs; give --inputs file.npz")
    arrays = read_npz(example)
    inputs = bind(graph, arrays)
    graph.constants.update(constants(graph, arrays))
    return Opened(graph, inputs, {value.name: value.name for value in graph.inputs})
