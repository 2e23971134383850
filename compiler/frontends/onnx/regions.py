"""A group of nodes as an ONNX model of its own, called as ``onnx::region`` in the traced graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto
from torch import Tensor

from attnc.compiler.frontends.onnx.dtypes import TO_ONNX, TO_TORCH, to_array
from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.grouping import names_read
from attnc.compiler.frontends.onnx.known import Constant, materialise, untraced
from attnc.compiler.frontends.onnx.model import Model
from attnc.compiler.frontends.onnx.node import Node
from attnc.runtime.onnx_region import Region, RegionOutput, region, register_region

MOST_BYTES = 1_800_000_000
"""A larger model doesn't fit into a protobuf."""
_IR_VERSION = 10


class Untyped(Exception):
    """An output of a region is no tensor of a known rank; the name says which."""


def call_region(model: Model, group: Sequence[Node], given: Sequence[str], values: Mapping[str, Any]) -> list[Tensor]:
    """The outputs ``given`` of a group on the values it reads.

    Raises Untyped where one is no tensor of known rank, NoForm where the group can't stand alone.
    """
    reads = dict.fromkeys(name for node in group for name in names_read(node))
    made = {name for node in group for name in node.outputs}
    outside = [name for name in reads if name not in made and name not in set(model.initializers)]
    fixed = {name: values[name] for name in outside if isinstance(values[name], Constant)}
    passed = {name: materialise(values[name]) for name in outside if name not in fixed}
    proto = _proto(model, group, passed, fixed, given)
    outputs = _types(proto, passed, given)
    digest = register_region(Region(proto.SerializeToString(deterministic=True), tuple(outputs)))
    return list(region(list(passed.values()), digest))


def _proto(
    model: Model,
    group: Sequence[Node],
    passed: Mapping[str, Tensor],
    fixed: Mapping[str, Constant],
    given: Sequence[str],
) -> ModelProto:
    """The model of a group; dimensions of its inputs are numbers, or named alike where they are equal sizes."""
    names = {name for node in group for name in names_read(node)}
    weights = [_weight(model, name) for name in model.initializers if name in names]
    with untraced():
        weights += [onnx.numpy_helper.from_array(to_array(value.tensor), name) for name, value in fixed.items()]
    if sum(weight.ByteSize() for weight in weights) > MOST_BYTES:
        raise NoForm("the weights onnxruntime would need are larger than a model can be")
    inputs = [
        onnx.helper.make_tensor_value_info(name, TO_ONNX[x.dtype], [_label(length) for length in x.shape])
        for name, x in passed.items()
    ]
    graph = onnx.helper.make_graph(
        [_copied(node.proto) for node in group], "region", inputs, [_bare(name) for name in given], weights
    )
    versions = [onnx.helper.make_opsetid(domain, version) for domain, version in sorted(model.versions.items())]
    return onnx.helper.make_model(graph, opset_imports=versions, ir_version=max(_IR_VERSION, model.proto.ir_version))


def _weight(model: Model, name: str) -> TensorProto:
    """An initializer with its numbers in it."""
    stored = model.proto_of(name)
    if stored.data_location != TensorProto.EXTERNAL:
        return stored
    with untraced():
        return onnx.numpy_helper.from_array(to_array(model.tensor(name)), name)


def _copied(proto: NodeProto) -> NodeProto:
    node = NodeProto()
    node.CopyFrom(proto)
    return node


def _bare(name: str) -> ValueInfoProto:
    info = ValueInfoProto()
    info.name = name
    return info


def _label(length: Any) -> int | str:
    return length if isinstance(length, int) else f"size {length}"


def _types(proto: ModelProto, passed: Mapping[str, Tensor], given: Sequence[str]) -> list[RegionOutput]:
    """The types of the outputs, by ONNX's shape inference; what it can't say is known only once the region ran."""
    places = {
        _label(length): (i, axis)
        for i, x in enumerate(passed.values())
        for axis, length in enumerate(x.shape)
        if not isinstance(length, int)
    }
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception as error:
        raise NoForm(f"ONNX's shape inference says {error}") from error
    found = {info.name: info.type for info in (*inferred.graph.output, *inferred.graph.value_info)}
    proto.graph.ClearField("output")
    outputs = []
    for name in given:
        kind = found.get(name)
        tensor = kind.tensor_type if kind is not None and kind.WhichOneof("value") == "tensor_type" else None
        if tensor is None or tensor.elem_type not in TO_TORCH or not tensor.HasField("shape"):
            raise Untyped(name)
        shape = tuple(_dimension(dim, places) for dim in tensor.shape.dim)
        outputs.append(RegionOutput(TO_TORCH[tensor.elem_type], shape))
        info = proto.graph.output.add()
        info.name = name
        info.type.tensor_type.elem_type = tensor.elem_type
    return outputs


def _dimension(dim: Any, places: Mapping[Any, tuple[int, int]]) -> int | tuple[int, int] | None:
    if dim.WhichOneof("value") == "dim_value":
        return int(dim.dim_value)
    return places.get(dim.dim_param) if dim.WhichOneof("value") == "dim_param" else None
