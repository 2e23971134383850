"""Small ONNX models by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

FLOAT, HALF, INT64, BOOL = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL

Ports = Mapping[str, tuple[int, Sequence[int | str | None] | None]]


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    """A node; names of inputs and outputs are separated by spaces, ``_`` is one left out."""
    name = attributes.pop("name", f"/{op.lower()}_{outputs.split()[0]}")
    taken = ["" if text == "_" else text for text in inputs.split()]
    return helper.make_node(op, taken, outputs.split(), name=name, **attributes)


def graph(nodes: Sequence[NodeProto], inputs: Ports, outputs: Ports, **constants: Any) -> GraphProto:
    """A graph; ``constants`` are its initializers."""
    made = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    return helper.make_graph(list(nodes), "g", _infos(inputs), _infos(outputs), made)


def model(nodes: Sequence[NodeProto], inputs: Ports, outputs: Ports, opset: int = 17, **constants: Any) -> ModelProto:
    """A model of one graph."""
    versions = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph(nodes, inputs, outputs, **constants), opset_imports=versions, ir_version=10)


def _infos(ports: Ports) -> list[Any]:
    return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in ports.items()]


def onnxruntime_says(proto: ModelProto, feed: Mapping[str, Any]) -> list[Any]:
    """What onnxruntime computes, without its own rewriting."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, dict(feed))
    return found
