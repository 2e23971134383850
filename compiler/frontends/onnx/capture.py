"""An imported ONNX model as a captured graph: sizes by the model's names, constants, and notes of what was left."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from attnc.compiler.frontends.onnx.importer import Imported
from attnc.compiler.frontends.onnx.model import identifiers
from attnc.compiler.frontends.torch import private
from attnc.compiler.frontends.torch.importer import SOURCE
from attnc.compiler.frontends.torch.sizes import DIMS
from attnc.compiler.host.exported import Exported, capture_exported
from attnc.compiler.report import Note


@dataclass(frozen=True, eq=False)
class CapturedOnnx:
    """A captured model with the file's own names."""

    exported: Exported
    inputs: dict[str, str]
    """The argument of each input, by its name in the file, in order."""
    outputs: tuple[str, ...]
    notes: tuple[Note, ...]


def capture_onnx(imported: Imported) -> CapturedOnnx:
    """Capture an imported model. Raises CaptureError where torch can't make it functional."""
    with private.any_size():
        exported = capture_exported(imported.program)
    _name_sizes(imported, exported)
    exported.hold_buffers()
    arguments = imported.module.arguments
    outputs = tuple(port.name for port in imported.model.outputs)
    return CapturedOnnx(exported, dict(arguments), outputs, tuple(_notes(imported)))


def _name_sizes(imported: Imported, exported: Exported) -> None:
    """Mark the inputs with the names the file has for their dimensions."""
    ports = {imported.module.arguments[port.name]: port for port in imported.model.inputs}
    dims = [dim for port in imported.model.inputs for dim in port.shape or () if isinstance(dim, str)]
    names = identifiers(dict.fromkeys(dims))
    placeholders = exported.graph_module.graph.find_nodes(op="placeholder")
    nodes = [node for node in placeholders if node.name not in exported.signature.state]
    for node, argument in zip(nodes, ports, strict=True):
        node.meta[SOURCE] = ports[argument].name
        node.meta[DIMS] = [names.get(dim) if isinstance(dim, str) else None for dim in ports[argument].shape or ()]


def _notes(imported: Imported) -> list[Note]:
    """What onnxruntime runs, and why: one note for each reason."""
    total, regional = len(imported.model.nodes), imported.module.regional
    if not regional:
        return []
    share = f"{len(regional)} of {total} nodes"
    reasons = Counter((node.op, imported.left.get(node, "")) for node in regional)
    return [
        Note("ATTNC-ONNX-REGION", f"{share} run in onnxruntime; {count} {op}: {reason}")
        for (op, reason), count in sorted(reasons.items())
    ]
