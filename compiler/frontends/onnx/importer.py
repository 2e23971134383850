"""An ONNX model as an exported program of torch, which then is compiled as any other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from onnx import ModelProto
from torch import Tensor

from attnc.compiler.frontends.onnx.dtypes import to_array
from attnc.compiler.frontends.onnx.errors import NoForm, OnnxError, TorchRefuses
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
    source: str | Path | bytes | ModelProto | Model,
    *,
    inputs: Mapping[str, Tensor] | None = None,
    sizes: Mapping[str, int | tuple[int, int | None]] | None = None,
) -> Imported:
    """Import a model. ``inputs`` are examples, by name. ``sizes`` has for a symbolic dimension its length in made
    examples, or its bounds.

    Raises OnnxError for a model that is wrong, naming the node, its inputs and their types; NoForm where torch can't
    hold it: an input or output that is no tensor, or something ``torch.export`` refuses.
    """
    model = source if isinstance(source, Model) else read_model(source)
    module = OnnxModule(model)
    examples = given_inputs(model, inputs) if inputs is not None else example_inputs(model, Lengths(model, sizes))
    shapes = dynamic_shapes(model, module.arguments, sizes)
    given = {module.arguments[port.name]: examples[port.name] for port in model.inputs}
    reasons = {node: NO_FORM for node in model.nodes if not has_form(node)}
    module.leave(reasons)
    while True:
        try:
            program = _exported(module, given, shapes)
            left = dict(module.trace.left)
        except TorchRefuses as error:
            if error.node in reasons or not _runs(model, examples):
                raise
            left = {error.node: f"torch refuses it ({error.__cause__})"}
        if not left:
            break
        reasons |= left
        module.leave(left)
    if module.trace.missing:
        raise NoForm(f"the output {module.trace.missing[0]!r} is no tensor of known rank")
    return Imported(model, module, program, given, reasons)


def _runs(model: Model, examples: Mapping[str, Tensor]) -> bool:
    """Whether onnxruntime runs the model: what torch refuses is then a fault of ours."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    source = str(Path(model.folder, Path(model.name).name)) if model.folder else model.proto.SerializeToString()
    try:
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        session.run(None, {name: to_array(x) for name, x in examples.items()})
    except Exception:
        return False
    return True


def _exported(
    module: OnnxModule, given: Mapping[str, Tensor], shapes: Mapping[str, Any]
) -> torch.export.ExportedProgram:
    try:
        return private.export_any_size(module, given, shapes)
    except (NoForm, OnnxError):
        raise
    except Exception as error:
        raise NoForm(f"torch.export says {error}") from error
