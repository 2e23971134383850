"""A node of an ONNX graph, its attributes read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import AttributeProto, NodeProto


@dataclass(frozen=True, eq=False)
class Node:
    """One node: ``op`` of ``domain`` (empty for ai.onnx) in the operator set ``version``."""

    op: str
    domain: str
    version: int
    name: str
    inputs: tuple[str, ...]
    """Names of values; empty for an input that is left out."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: NodeProto

    def __str__(self) -> str:
        """The op and the node's name, else that of its first output."""
        label = f"node {self.name!r}" if self.name else f"the node that makes {self.outputs[0]!r}"
        return f"{self.domain}.{self.op}, {label}" if self.domain else f"{self.op}, {label}"

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or ``default`` where the node doesn't have it."""
        return self.attributes.get(name, default)

    def makes(self, output: int) -> bool:
        """Whether somebody may want output number ``output``."""
        return output < len(self.outputs) and self.outputs[output] != ""

    @property
    def scope(self) -> str:
        """Where in the source's modules the node stands, by the name exporters give it: ``/layers.0/attn/MatMul``."""
        parts = [part for part in self.name.split("/")[:-1] if part]
        return ".".join(parts)


def read_node(proto: NodeProto, versions: Mapping[str, int]) -> Node:
    """A node of a model whose operator sets are ``versions``, by domain."""
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    return Node(
        proto.op_type,
        domain,
        versions.get(domain, 1),
        proto.name,
        tuple(proto.input),
        tuple(proto.output),
        {attribute.name: _value(attribute) for attribute in proto.attribute},
        proto,
    )


def _value(attribute: AttributeProto) -> Any:
    found = onnx.helper.get_attribute_value(attribute)
    if attribute.type == AttributeProto.STRING:
        return found.decode("utf-8", "replace")
    if attribute.type == AttributeProto.STRINGS:
        return [item.decode("utf-8", "replace") for item in found]
    return list(found) if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS) else found
