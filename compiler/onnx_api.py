"""Compile an ONNX model: what :func:`attnc.compile` does with a file, its bytes, or a ModelProto.

The onnx package is imported only where there is such a model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from attnc.compiler.driver import Compiled, compile_graph
from attnc.compiler.options import Options
from attnc.compiler.report import Note, Report, record
from attnc.runtime.onnx_whole import OnnxruntimeModel

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch import Tensor

    from attnc.compiler.frontends.onnx.capture import CapturedOnnx
    from attnc.compiler.frontends.onnx.model import Model

    OnnxSource: TypeAlias = str | os.PathLike[str] | bytes | ModelProto


def compile_onnx(
    source: OnnxSource,
    options: Options,
    *,
    inputs: Mapping[str, Tensor] | None = None,
    sizes: Mapping[str, int | tuple[int, int | None]] | None = None,
    name: str | None = None,
) -> tuple[CapturedOnnx, Compiled] | Whole:
    """Import and compile an ONNX model; one that torch can't hold is left whole to onnxruntime, and its report says so.

    ``inputs`` are examples by name; where there are none, they are made. ``sizes`` says of a symbolic dimension its
    length in made examples, or the (inclusive) bounds it has, by its name in the file or as ``input.axis``.
    Raises OnnxError for a model that is wrong, ImportError where onnx isn't installed.
    """
    try:
        from attnc.compiler.frontends.onnx.capture import capture_onnx
        from attnc.compiler.frontends.onnx.errors import NoForm
        from attnc.compiler.frontends.onnx.importer import import_onnx
        from attnc.compiler.frontends.onnx.model import read_model
    except ImportError as error:
        raise ImportError("reading an ONNX model needs the onnx package: pip install attnc[onnx]") from error
    model = read_model(Path(source) if isinstance(source, str | os.PathLike) else source)
    try:
        imported = import_onnx(model, inputs=inputs, sizes=sizes)
    except NoForm as reason:
        return _whole(model, name or model.name, str(reason), options)
    captured = capture_onnx(imported)
    done = compile_graph(captured.exported.graph_module, options, name=name or model.name)
    done.report.notes.extend(captured.notes)
    record(done.report)
    return captured, done


@dataclass(frozen=True, eq=False)
class Whole:
    """A model that onnxruntime runs as it stands."""

    model: OnnxruntimeModel
    report: Report


def _whole(model: Model, name: str, reason: str, options: Options) -> Whole:
    """Leave a model to onnxruntime. Raises OnnxError where that refuses it too."""
    from attnc.compiler.frontends.onnx.errors import OnnxError

    source = str(model.folder / Path(model.name).name) if model.folder else model.proto.SerializeToString()
    report = Report(name=name, host=options.host)
    report.notes.append(Note("ATTNC-ONNX-WHOLE", f"the whole model runs in onnxruntime: {reason}"))
    try:
        whole = Whole(OnnxruntimeModel(source), report)
    except RuntimeError as error:
        raise OnnxError(f"importing {name}: {reason}; and {error}") from error
    record(report)
    return whole


def example_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Example inputs by name; None where none are given. Raises ValueError for positional ones."""
    if args:
        raise ValueError("the inputs of an ONNX model have names: give them as kwargs")
    return dict(kwargs) or None
