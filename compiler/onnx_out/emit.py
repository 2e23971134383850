"""From an ONNX model to the same model with attentions as onnxruntime's operator. No kernel is built for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attnc.compiler.frontends.onnx.capture import capture_onnx
from attnc.compiler.frontends.onnx.importer import import_onnx
from attnc.compiler.frontends.torch.importer import import_graph
from attnc.compiler.hints import size_hints, user_names
from attnc.compiler.onnx_out.write import Emitted, replace_attentions
from attnc.compiler.passes.base import Context
from attnc.compiler.passes.pipeline import PIPELINE, run_pipeline

if TYPE_CHECKING:
    from onnx import ModelProto


def emit_onnx(
    source: str | Path | bytes | ModelProto, *, sizes: Mapping[str, int | tuple[int, int | None]] | None = None
) -> Emitted:
    """Find a model's attentions and replace those that mean exactly what ``com.microsoft.MultiHeadAttention`` does.

    ``sizes`` is that of :func:`~attnc.compiler.frontends.onnx.importer.import_onnx`, and so are the errors.
    """
    imported = import_onnx(source, sizes=sizes)
    graph = import_graph(capture_onnx(imported).exported.graph_module, name=imported.model.name)
    context = Context("cpu", size_hints(graph), user_names=user_names(graph))
    last = next(i for i, step in enumerate(PIPELINE) if step.name == "fuse-attention")
    run_pipeline(graph, context, passes=PIPELINE[: last + 1])
    return replace_attentions(imported.model, context.sites, imported.module.trace.shapes)
