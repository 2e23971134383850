"""Models of one operator, answered by its form here and by onnxruntime."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
import torch
from onnx import ModelProto, helper, numpy_helper

from attnc.compiler.frontends.onnx.known import Constant
from attnc.compiler.frontends.onnx.node import read_node
from attnc.compiler.frontends.onnx.ops import entry_of
from benchmarks.cases.onnx_traps.graph import MICROSOFT, Array
from benchmarks.cases.onnx_traps.runs import by_onnxruntime, error


@dataclass(frozen=True)
class Single:
    """One node; an input that is None is left out, those named in ``fixed`` are constants of the model."""

    op: str
    inputs: Mapping[str, Array | None]
    outputs: Sequence[str] = ("y",)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    fixed: Collection[str] = ()
    domain: str = MICROSOFT

    def model(self) -> ModelProto:
        """The model; the type of outputs is left to inference, but for scores, which may be of several."""
        names = [name if value is not None else "" for name, value in self.inputs.items()]
        while not names[-1]:
            names.pop()
        node = helper.make_node(self.op, names, list(self.outputs), "single", domain=self.domain, **self.attributes)
        kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in self._given().items()}
        ports = [
            helper.make_tensor_value_info(name, kinds[name], value.shape)
            for name, value in self._given().items()
            if name not in self.fixed
        ]
        made = [_output(name) for name in self.outputs if name]
        constants = [numpy_helper.from_array(self._given()[name], name) for name in self.fixed]
        graph = helper.make_graph([node], "single", ports, made, constants)
        domains = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=10)

    def _given(self) -> dict[str, Array]:
        return {name: value for name, value in self.inputs.items() if value is not None}

    def ours(self) -> list[Array]:
        """What the operator's form answers. Raises NoForm."""
        node = read_node(self.model().graph.node[0], {"": 17, MICROSOFT: 1})
        entry = entry_of(self.domain, self.op, 17 if not self.domain else 1)
        assert entry is not None, f"{self.op} has no form"
        given: list[Any] = []
        for place, (name, value) in enumerate(self.inputs.items()):
            tensor = None if value is None else torch.from_numpy(value)
            known = entry.known is None or place in entry.known
            given.append(Constant(tensor) if known and name in self.fixed and tensor is not None else tensor)
        made = entry.form(node, *given[: len(node.inputs)])
        results = made if isinstance(made, tuple) else (made,)
        return [x.numpy() for name, x in zip(self.outputs, results, strict=False) if name]

    def theirs(self) -> list[Array]:
        """What onnxruntime answers."""
        inputs = {name: value for name, value in self._given().items() if name not in self.fixed}
        return by_onnxruntime(self.model(), inputs)

    def error(self) -> float:
        """The greatest error of any output."""
        return error(self.ours(), self.theirs())


def _output(name: str) -> onnx.ValueInfoProto:
    if name == "scores":
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
    return onnx.ValueInfoProto(name=name)
