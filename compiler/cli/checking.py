"""``--check``: what was written, against the source it was made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnc.compiler.cli.source import Subject
from attnc.compiler.cli.subject import Opened, open_subject

if TYPE_CHECKING:
    from rich.console import Console

    from attnc.compiler.inspection.check import Checked

Run = Callable[[Sequence[Any]], Sequence[Any]]


def check_subject(subject: Subject, example: Path | None, made: Callable[[dict[str, Any]], dict[str, Any]]) -> Checked:
    """Compare ``made`` (results by name of inputs by name) with a source on many inputs.

    Raises CliError and whatever opening the source raises.
    """
    from attnc.compiler.inspection.check import check_program

    opened = open_subject(subject, example)
    names = list(opened.names.values())
    outputs: list[str] = []

    def program(data: Sequence[Any]) -> Sequence[Any]:
        found = made(dict(zip(names, data, strict=True)))
        outputs[:] = found
        return list(found.values())

    pairs = zip(opened.graph.inputs, opened.inputs, strict=True)
    first = program([x for value, x in pairs if value.name in opened.names])
    labels = outputs if len(outputs) == len(first) else [f"output {i}" for i in range(len(first))]
    return check_program(opened.graph, opened.inputs, opened.names, _source(subject, opened), program, labels)


def _source(subject: Subject, opened: Opened) -> Run:
    """The source itself: onnxruntime for an ONNX file, PyTorch for a model, the interpreter for a graph."""
    from attnc.compiler.interpreter import Interpreter
    from attnc.ir.graph import Graph

    if isinstance(subject.model, Path):
        return _onnxruntime(subject.model, list(opened.names.values()))
    if isinstance(subject.model, Graph):
        return Interpreter(opened.graph).run
    return _torch(subject)


def _onnxruntime(path: Path, names: Sequence[str]) -> Run:
    from attnc.runtime.onnx_whole import OnnxruntimeModel

    model = OnnxruntimeModel(str(path))
    return lambda data: list(model(**dict(zip(names, data, strict=True))))


def _torch(subject: Subject) -> Run:
    import torch
    from torch.utils import _pytree as pytree

    spec = pytree.tree_structure((subject.args, subject.kwargs))

    def run(data: Sequence[Any]) -> Sequence[Any]:
        args, kwargs = pytree.tree_unflatten(list(data), spec)
        with torch.no_grad():
            return pytree.tree_leaves(subject.model(*args, **kwargs))  # type: ignore[operator]

    return run


def show(checked: Checked, console: Console) -> None:
    """A row for each output and set of inputs; what was left out below."""
    from rich.table import Table

    table = Table("inputs", "output", "against the source", "")
    for row in checked.rows:
        table.add_row(row.inputs, row.output, row.detail, "right" if row.passed else "WRONG")
    console.print(table)
    for text in checked.left_out:
        console.print(f"left out, the source doesn't take it: {text}")
