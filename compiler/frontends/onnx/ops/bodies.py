"""Graphs inside of nodes: branches, and the operators that ONNX itself writes out in others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx
from onnx import GraphProto, TypeProto
from torch import Tensor

from attnc.compiler.frontends.onnx.dtypes import TO_ONNX
from attnc.compiler.frontends.onnx.known import Constant, Sizes, Value
from attnc.compiler.frontends.onnx.model import OLDEST, read_tensor
from attnc.compiler.frontends.onnx.node import Node, read_node


@dataclass(frozen=True)
class Body:
    """An operator written out."""

    inputs: list[str]
    outputs: list[str]
    nodes: list[Node]
    versions: Mapping[str, int]


def nodes_of(graph: GraphProto, versions: Mapping[str, int]) -> list[Node]:
    """The nodes of a graph inside of a node."""
    return [read_node(node, versions) for node in graph.node]


def constants_of(graph: GraphProto) -> dict[str, Constant]:
    """Its constants, by name."""
    return {tensor.name: Constant(read_tensor(tensor, None)) for tensor in graph.initializer}


_OLDEST = {"Scan": 9}
"""Where operator set 11 added something, and what was there before means the same."""


@cache
def _is_known(op: str, version: int) -> bool:
    since, oldest = (_since(op, number) for number in (version, OLDEST))
    return since is not None and (since == oldest or oldest is None)


def _since(op: str, version: int) -> int | None:
    """The operator set that gave an operator its meaning in ``version``; None where it has none."""
    try:
        schema = onnx.defs.get_schema(op, version)
    except onnx.defs.SchemaError:
        return None
    return None if schema.deprecated else int(schema.since_version)


def is_known_version(node: Node) -> bool:
    """Whether forms know what the operator means: from operator set 11 on, and before where it meant the same."""
    return bool(node.domain) or node.version >= _OLDEST.get(node.op, OLDEST) or _is_known(node.op, node.version)


def has_function(node: Node) -> bool:
    """Whether the specification writes an operator out in others, for some inputs at least."""
    schema = _schema(node)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _schema(node: Node) -> Any:
    """The specification of an operator; None where ONNX has none."""
    if not onnx.defs.has(node.op, node.domain):
        return None
    try:
        return onnx.defs.get_schema(node.op, node.version, node.domain)
    except onnx.defs.SchemaError:
        return None


def function_of(node: Node, inputs: list[Value], outer: Mapping[str, int]) -> Body | None:
    """What the specification writes an operator out as, for these inputs; None where it doesn't."""
    schema = _schema(node)
    proto = None if schema is None else _function(schema, node, inputs)
    if proto is None:
        return None
    versions = {"" if item.domain == "ai.onnx" else item.domain: item.version for item in proto.opset_import}
    versions.setdefault("", outer.get("", OLDEST))
    given = {attribute.name: attribute for attribute in node.proto.attribute}
    defaults = {name: schema.attributes[name].default_value for name in proto.attribute if name in schema.attributes}
    defaults = {name: value for name, value in defaults.items() if value.type}
    defaults |= {attribute.name: attribute for attribute in proto.attribute_proto}
    nodes = [read_node(_bound(inner, {**defaults, **given}), versions) for inner in proto.node]
    return Body(list(proto.input), list(proto.output), nodes, versions)


def _function(schema: Any, node: Node, inputs: list[Value]) -> onnx.FunctionProto | None:
    if schema.has_function:
        found = schema.function_body
        return found if isinstance(found, onnx.FunctionProto) else onnx.FunctionProto.FromString(found)
    if not schema.has_context_dependent_function:
        return None
    versions = [version for version in schema.context_dependent_function_opset_versions if version <= node.version]
    if not versions:
        return None
    types = [_type(value).SerializeToString() for value in inputs]
    text = schema.get_context_dependent_function_with_opset_version(
        max(versions), node.proto.SerializeToString(), types
    )
    return onnx.FunctionProto.FromString(text) if text else None


def _type(value: Value) -> TypeProto:
    """The type of a value: element type, and the lengths that are known."""
    if not isinstance(value, Tensor | Constant | Sizes):
        return TypeProto()
    lengths = [length if isinstance(length, int) else None for length in value.shape]
    return onnx.helper.make_tensor_type_proto(TO_ONNX[value.dtype], lengths)


def _bound(proto: onnx.NodeProto, attributes: Mapping[str, Any]) -> onnx.NodeProto:
    """A node of a function, attributes that refer to the function's replaced by their values."""
    bound = onnx.NodeProto()
    bound.CopyFrom(proto)
    del bound.attribute[:]
    for attribute in proto.attribute:
        if not attribute.ref_attr_name:
            bound.attribute.append(attribute)
        elif attribute.ref_attr_name in attributes:
            named = bound.attribute.add()
            named.CopyFrom(attributes[attribute.ref_attr_name])
            named.name = attribute.name
    return bound
