"""Attentions of an ONNX model replaced by ``com.microsoft.MultiHeadAttention``, everything else left as it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from attnc.compiler.frontends.onnx.model import Model
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.onnx_out.match import Keep, Match, Matcher, Shape, Term
from attnc.compiler.report import Site

MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Emitted:
    """The new model, the attentions in it that are one operator now, and why the others are not."""

    proto: ModelProto
    replaced: tuple[Site, ...]
    kept: tuple[tuple[Site, str], ...]


def replace_attentions(model: Model, sites: Iterable[Site], shapes: Mapping[str, Shape]) -> Emitted:
    """Replace each attention found that means exactly what the operator computes.

    ``sites`` are those of the report, ``shapes`` those of the float32 values as they were traced. The result runs
    in onnxruntime as it is.
    """
    matcher, writer = Matcher(model, shapes), _Writer(model)
    places = _places(model)
    replaced, kept = [], []
    for site in sites:
        try:
            if not site.fused:
                raise Keep(f"{site.code}: {site.reason}")
            match = matcher.match(_node(site, places))
        except Keep as reason:
            kept.append((site, str(reason)))
        else:
            writer.replace(match)
            replaced.append(site)
    return Emitted(writer.finished(), tuple(replaced), tuple(kept))


def _places(model: Model) -> dict[str, list[Node]]:
    """Nodes by the text their sites have."""
    places: dict[str, list[Node]] = {}
    for node in model.nodes:
        places.setdefault(f"{model.name}: {node}", []).append(node)
    return places


def _node(site: Site, places: Mapping[str, list[Node]]) -> Node:
    found = places.get(site.where, [])
    if len(found) != 1:
        raise Keep("its node has no name of its own" if found else "it was found in several nodes at once")
    return found[0]


@dataclass
class _Writer:
    model: Model
    added: dict[Node, list[NodeProto]] = field(default_factory=dict)
    """Nodes that stand in place of a product with V."""
    constants: dict[str, TensorProto] = field(default_factory=dict)
    _biases: dict[object, tuple[str, str]] = field(default_factory=dict)
    _count: int = 0
    _nodes: list[NodeProto] = field(default_factory=list)

    def replace(self, match: Match) -> None:
        """Write the operator in place of an attention's product with V."""
        self._nodes = []
        _, heads, _, width = match.shapes[0]
        features = match.shapes[2][3]
        query = self._packed(match.q, [0, 2, 1, 3], heads * width)
        key = self._packed(match.kt, [0, 3, 1, 2], heads * width)
        value = self._packed(match.v, [0, 2, 1, 3], heads * features)
        bias, dead = self._bias(match) if match.terms else ("", "")
        inputs = [query, key, value, "", "", bias]
        packed = self._node(
            "MultiHeadAttention", inputs if bias else inputs[:3], MICROSOFT, num_heads=heads, scale=match.scale
        )
        split = self._node("Reshape", [packed, self._ints(0, 0, heads, features)])
        result = match.product.outputs[0]
        if dead and match.guarded:
            merged = self._node("Transpose", [split], perm=[0, 2, 1, 3])
            self._node("Where", [dead, self._float(0.0), merged], out=result)
        else:
            self._node("Transpose", [split], perm=[0, 2, 1, 3], out=result)
        self.added[match.product] = self._nodes

    def _packed(self, name: str, order: list[int], hidden: int) -> str:
        """A value as [B, length, heads·features]."""
        return self._node("Reshape", [self._node("Transpose", [name], perm=order), self._ints(0, 0, hidden)])

    def _bias(self, match: Match) -> tuple[str, str]:
        """What is added to scores, as [B or 1, H or 1, S, T], and which rows see nothing; shared where it is the same.

        Rows without any key are taken out of the operator where the source makes them 0: it would make them NaN.
        """
        key = (match.terms, match.guarded, str(match.shapes[0][2]), str(match.shapes[1][3]))
        if key not in self._biases:
            total = ""
            for term in match.terms:
                value = self._term(term)
                total = self._node("Add", [total, value]) if total else value
            bias = self._node("Expand", [total, self._lengths(match)])
            dead = ""
            if match.guarded:
                dead = self._node("Equal", [self._row_maximum(bias), self._float(-numpy.inf)])
                bias = self._node("Where", [dead, self._float(0.0), bias])
            self._biases[key] = (bias, dead)
        return self._biases[key]

    def _term(self, term: Term) -> str:
        if not term.is_condition:
            return term.value
        return self._node("Where", [term.value, self._float(0.0), self._float(-numpy.inf)])

    def _row_maximum(self, bias: str) -> str:
        if self.model.versions.get("", 1) >= 18:
            return self._node("ReduceMax", [bias, self._ints(-1)], keepdims=1)
        return self._node("ReduceMax", [bias], axes=[-1], keepdims=1)

    def _lengths(self, match: Match) -> str:
        """The shape [1, 1, S, T]."""
        rows = self._node("Gather", [self._node("Shape", [match.q]), self._ints(2)], axis=0)
        columns = self._node("Gather", [self._node("Shape", [match.kt]), self._ints(3)], axis=0)
        return self._node("Concat", [self._ints(1, 1), rows, columns], axis=0)

    def _node(self, op: str, inputs: Sequence[str], domain: str = "", *, out: str = "", **attributes: Any) -> str:
        self._count += 1
        name = f"attnc_{self._count}_{op}"
        result = out or name
        self._nodes.append(helper.make_node(op, list(inputs), [result], name=name, domain=domain, **attributes))
        return result

    def _ints(self, *numbers: int) -> str:
        name = "attnc_ints_" + "_".join(str(n).replace("-", "m") for n in numbers)
        self.constants[name] = numpy_helper.from_array(numpy.array(numbers, numpy.int64), name)
        return name

    def _float(self, number: float) -> str:
        name = "attnc_zero" if number == 0 else "attnc_minus_inf"
        self.constants[name] = numpy_helper.from_array(numpy.array(number, numpy.float32), name)
        return name

    def finished(self) -> ModelProto:
        """The model with the new nodes, without those nobody reads any more."""
        proto = ModelProto()
        proto.CopyFrom(self.model.proto)
        if not self.added:
            return proto
        nodes: list[NodeProto] = []
        for node in self.model.nodes:
            nodes += self.added.get(node, [node.proto])
        kept = _needed(nodes, [port.name for port in self.model.outputs])
        read = _read(kept)
        gone = _read([node.proto for node in self.model.nodes]) - read - {port.name for port in self.model.outputs}
        weights = [tensor for tensor in proto.graph.initializer if tensor.name not in gone]
        del proto.graph.node[:], proto.graph.initializer[:]
        proto.graph.node.extend(kept)
        proto.graph.initializer.extend(weights)
        proto.graph.initializer.extend(self.constants[name] for name in sorted(self.constants) if name in read)
        if MICROSOFT not in {item.domain for item in proto.opset_import}:
            proto.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
        return proto


def _needed(nodes: Sequence[NodeProto], outputs: Sequence[str]) -> list[NodeProto]:
    """The nodes that outputs depend on, in order."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(name for name in node.output if name):
            kept.append(node)
            wanted |= _read([node])
    return kept[::-1]


def _read(nodes: Iterable[NodeProto]) -> set[str]:
    """Every value that nodes read, in graphs within them too."""
    names: set[str] = set()
    for node in nodes:
        names.update(node.input)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                names |= _read(inner.node) | {info.name for info in inner.output}
    return names
