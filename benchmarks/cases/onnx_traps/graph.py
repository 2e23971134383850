"""Small ONNX models written as calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
Array = NDArray[Any]
Value = str | int | float | bool | list[int] | Array | None
"""A name, a constant, or an input left out."""


@dataclass(frozen=True)
class Port:
    """An input of a model; ``kind`` is float, bool, int32 or int64, and names among ``dims`` are symbolic lengths."""

    name: str
    dims: tuple[int | str, ...]
    kind: str = "float"

    @property
    def number(self) -> int:
        """ONNX's of the element type."""
        return int(TensorProto.DataType.Value(self.kind.upper()))

    def shape(self, lengths: Mapping[str, int]) -> tuple[int, ...]:
        """The dimensions as numbers; a sum of names is the sum of their lengths."""
        return tuple(
            dim if isinstance(dim, int) else sum(lengths[part] for part in dim.split(" + ")) for dim in self.dims
        )

    def array(self, lengths: Mapping[str, int], generator: numpy.random.Generator) -> Array:
        """Random numbers; of booleans and integers, which are 0 and 1, the first of each row is true."""
        shape = self.shape(lengths)
        if self.kind == "float":
            return generator.standard_normal(shape).astype(numpy.float32)
        drawn = generator.random(shape) < 0.6
        drawn[..., :1] = True
        return drawn.astype(self.kind)


class Graph:
    """Collects nodes; a call adds one and returns the name of its output, or the names where several are asked for."""

    def __init__(self, ports: tuple[Port, ...], opset: int = 17) -> None:
        self.ports, self.opset = ports, opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def __call__(self, op: str, *inputs: Value, domain: str = "", **attributes: Any) -> str:
        """Add a node of one output."""
        return self.several(1, op, *inputs, domain=domain, **attributes)[0]

    def several(self, count: int, op: str, *inputs: Value, domain: str = "", **attributes: Any) -> list[str]:
        """Add a node of ``count`` outputs."""
        name = f"{op}_{len(self.nodes)}"
        outputs = [f"{name}_{i}" for i in range(count)]
        given = [self._name(value) for value in inputs]
        self.nodes.append(helper.make_node(op, given, outputs, name=name, domain=domain, **attributes))
        return outputs

    def _name(self, value: Value) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        dtype = numpy.float32 if isinstance(value, float) else None if isinstance(value, numpy.ndarray) else numpy.int64
        array = numpy.asarray(value, numpy.bool_ if isinstance(value, bool) else dtype)
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def length(self, name: str, dim: int) -> str:
        """The length of a dimension, [1]."""
        return self("Slice", self("Shape", name), [dim], [dim + 1])

    def line(self, name: str, dim: int, start: str | int = 0) -> str:
        """0, 1, … for a dimension, or from ``start`` [1] on as many."""
        count = self("Squeeze", self.length(name, dim), [0])
        if isinstance(start, int):
            return self("Range", 0, count, 1)
        first = self("Squeeze", start, [0])
        return self("Range", first, self("Add", first, count), 1)

    def model(self, *outputs: str) -> ModelProto:
        """The model, checked."""
        inputs = [helper.make_tensor_value_info(port.name, port.number, port.dims) for port in self.ports]
        made = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self.nodes, "trap", inputs, made, self.constants)
        domains = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        inferred = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=domains, ir_version=10))
        for info in inferred.graph.output:
            if not info.HasField("type"):
                info.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
        return inferred
