"""An ONNX model as an exported program of torch, which then is compiled as any other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from onnx import ModelProto
from torch import Tensor

from attnc.compiler.frontends.onnx.errors import NoForm, OnnxError
from attnc.compiler.frontends.onnx.examples import Lengths, dynamic_shapes, example_inputs, given_inputs
from attnc.compiler.frontends.onnx.model import Model, read_model
from attnc.compiler.frontends.onnx.module import OnnxModule
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.trace import NO_FORM, has_form
from attnc.compiler.frontends.torch import private


@dataclass(frozen=True, eq=False)
class Imported:
    """A model in torch's form."""

    model: Model
    module: OnnxModule
    program: torch.export.ExportedProgram
    examples: Mapping[str, Tensor]
    """The inputs it was traced with, by argument, in order."""
    left: Mapping[Node, str]
    """Nodes that onnxruntime runs, with the reason."""


def import_onnx(
    source: str | Path | bytes | ModelProto,
    *,
    inputs: Mapping[str, Tensor] | None = None,
    sizes: Mapping[str, int | tuple[int, int | None]] | None = None,
) -> Imported:
    """Import a model. ``inputs`` are examples, by name. ``sizes`` has for a symbolic dimension its length in made
    examples, or its bounds.

    Raises OnnxError for a model that is wrong, naming the node, its inputs and their types.
    """
    model = read_model(source)
    module = OnnxModule(model)
    examples = given_inputs(model, inputs) if inputs is not None else example_inputs(model, Lengths(model, sizes))
    shapes = dynamic_shapes(model, module.arguments, sizes)
    given = {module.arguments[port.name]: examples[port.name] for port in model.inputs}
    reasons = {node: NO_FORM for node in model.nodes if not has_form(node)}
    module.leave(reasons)
    while True:
        program = _exported(module, given, shapes)
        left = dict(module.trace.left)
        if not left and module.trace.missing:
            raise OnnxError(
                f"importing {model.name}: the output {module.trace.missing[0]!r} is no tensor of known rank"
            )
        if not left:
            return Imported(model, module, program, given, reasons)
        reasons |= left
        module.leave(left)


def _exported(
    module: OnnxModule, given: Mapping[str, Tensor], shapes: Mapping[str, Any]
) -> torch.export.ExportedProgram:
    try:
        return private.export_any_size(module, given, shapes)
    except (NoForm, OnnxError):
        raise
    except Exception as error:
        raise OnnxError(f"importing {module.model.name}: torch.export says {error}") from error
