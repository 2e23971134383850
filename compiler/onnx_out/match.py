"""Which nodes of an ONNX graph are exactly what ``com.microsoft.MultiHeadAttention`` computes.

That an attention is one was found by the passes. Here its nodes are held against the operator's meaning, attribute by
attribute: products, then a scale, then terms added to the scores, a softmax over keys, perhaps NaN put to 0, a product.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from attnc.compiler.frontends.onnx.known import Int
from attnc.compiler.frontends.onnx.model import Model
from attnc.compiler.frontends.onnx.node import Node

Shape = tuple[Int, ...]


class Keep(Exception):
    """An attention stays as it is; the message says why."""


@dataclass(frozen=True)
class Term:
    """Something added to scores: a value, or 0 where ``value`` holds and −inf elsewhere."""

    value: str
    is_condition: bool = False


@dataclass(frozen=True)
class Match:
    """An attention by the names of its values. q: [B, H, S, D], kt: [B, H, D, T], v: [B, H, T, E], all float32."""

    q: str
    kt: str
    v: str
    scale: float
    terms: tuple[Term, ...]
    guarded: bool
    """Rows that see no key are 0; else they are what the softmax makes of them."""
    product: Node
    shapes: tuple[Shape, Shape, Shape]


@dataclass
class Matcher:
    """Looks at the nodes of a model. ``shapes`` has the shape of each float32 value, with sizes as they were traced."""

    model: Model
    shapes: Mapping[str, Shape]
    makers: dict[str, Node] = field(init=False)
    readers: dict[str, list[Node]] = field(init=False)

    def __post_init__(self) -> None:
        self.makers = {name: node for node in self.model.nodes for name in node.outputs if name}
        self.readers = {}
        for node in self.model.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)
        self._outputs = {port.name for port in self.model.outputs}

    def match(self, softmax: Node) -> Match:
        """The attention around a softmax. Raises :class:`Keep`."""
        if softmax.op != "Softmax" or softmax.domain:
            raise Keep(f"{softmax.op} is an operator of onnxruntime already, or written out")
        rank = len(self._shape(softmax.inputs[0]))
        axis = softmax.get("axis", -1 if softmax.version >= 13 else 1)
        if rank != 4 or axis not in (-1, 3):
            raise Keep(f"its scores have {rank} dimensions and the softmax is over axis {axis}")
        scores, scale, terms = self._scores(softmax.inputs[0])
        product, weights, guarded = self._product(softmax)
        if product.inputs[0] != weights:
            raise Keep("the weights are not the first factor of the product with V")
        names = (scores.inputs[0], scores.inputs[1], product.inputs[1])
        shapes = tuple(self._shape(name) for name in names)
        self._fits(*shapes)
        return Match(*names, scale, tuple(terms), guarded, product, shapes)  # type: ignore[arg-type]

    def _shape(self, name: str) -> Shape:
        if name not in self.shapes:
            raise Keep(f"the value {name!r} is no float32 tensor of known rank")
        return self.shapes[name]

    @staticmethod
    def _fits(q: Shape, kt: Shape, v: Shape) -> None:
        if not len(q) == len(kt) == len(v) == 4:
            raise Keep("Q, K and V don't have 4 dimensions each")
        heads = {str(shape[1]) for shape in (q, kt, v)}
        if len(heads) != 1 or not all(isinstance(n, int) for n in (q[1], q[3], v[3])):
            raise Keep(f"Q, K and V have {', '.join(sorted(heads))} heads, or sizes that are not numbers")
        if len({str(shape[0]) for shape in (q, kt, v)}) != 1:
            raise Keep("Q, K and V have different batch sizes")

    def _scores(self, name: str) -> tuple[Node, float, list[Term]]:
        """From the softmax up to the product: the node, the scale, and what is added after it."""
        scale, scaled = 1.0, False
        terms: list[Term] = []
        while True:
            node = self._only(name)
            if node.op == "MatMul":
                return node, scale, terms
            if node.op in ("Mul", "Div") and (found := self._scaled(node)) is not None:
                name, factor = found
                scale *= factor
                scaled = True
            elif node.op in ("Add", "Where") and scaled:
                raise Keep("a term is added before the scale")
            elif node.op == "Add":
                name, term = self._added(node)
                terms.append(term)
            elif node.op == "Where":
                name, term = self._selected(node)
                terms.append(term)
            else:
                raise Keep(f"{node.op} stands between Q·Kᵀ and the softmax")

    def _only(self, name: str) -> Node:
        """The node that makes a value nobody else reads."""
        if name not in self.makers:
            raise Keep("the scores are an input of the model")
        if len(self.readers.get(name, [])) != 1 or name in self._outputs:
            raise Keep(f"the value {name!r} is read elsewhere too")
        return self.makers[name]

    def _number(self, name: str) -> float | None:
        """A constant of one element."""
        made = self.makers.get(name)
        if made is not None and made.op == "Constant" and "value" in made.attributes:
            from attnc.compiler.frontends.onnx.model import read_tensor

            tensor = read_tensor(made.get("value"), None)
        elif name in set(self.model.initializers):
            tensor = self.model.tensor(name)
        else:
            return None
        return float(tensor.reshape(())) if tensor.numel() == 1 else None

    def _scaled(self, node: Node) -> tuple[str, float] | None:
        first, second = node.inputs
        if (factor := self._number(second)) is not None:
            return first, factor if node.op == "Mul" else 1 / factor
        if node.op == "Mul" and (factor := self._number(first)) is not None:
            return second, factor
        raise Keep(f"the scores are in a {node.op} with something that is no constant number")

    def _leads_to_product(self, name: str, depth: int = 8) -> bool:
        node = self.makers.get(name)
        if node is None or depth == 0:
            return False
        if node.op == "MatMul":
            return True
        return node.op in ("Mul", "Div", "Add", "Where") and any(
            self._leads_to_product(source, depth - 1) for source in node.inputs
        )

    def _added(self, node: Node) -> tuple[str, Term]:
        sides = [name for name in node.inputs if self._leads_to_product(name)]
        if len(sides) != 1:
            raise Keep("what is added to the scores holds a product too")
        other = next(name for name in node.inputs if name != sides[0])
        if len(self._shape(other)) > 4:
            raise Keep("what is added to the scores has more dimensions than they have")
        return sides[0], Term(other)

    def _selected(self, node: Node) -> tuple[str, Term]:
        condition, scores, fill = node.inputs
        if self._number(fill) != -math.inf:
            raise Keep("masked scores are replaced by something else than −inf")
        return scores, Term(condition, is_condition=True)

    def _product(self, softmax: Node) -> tuple[Node, str, bool]:
        """The product with V, the weights it reads, and whether NaN among them became 0."""
        weights, guarded = softmax.outputs[0], False
        readers = self._readers(weights)
        if sorted(node.op for node in readers) == ["IsNaN", "Where"]:
            weights, guarded = self._guard(weights, readers), True
            readers = self._readers(weights)
        if [node.op for node in readers] != ["MatMul"]:
            raise Keep(f"the weights are read by {', '.join(node.op for node in readers) or 'nobody'}")
        return readers[0], weights, guarded

    def _readers(self, name: str) -> Sequence[Node]:
        if name in self._outputs:
            raise Keep("the weights are an output of the model")
        return self.readers.get(name, [])

    def _guard(self, weights: str, readers: Sequence[Node]) -> str:
        test = next(node for node in readers if node.op == "IsNaN")
        select = next(node for node in readers if node.op == "Where")
        condition, zero, kept = select.inputs
        if (condition, kept) != (test.outputs[0], weights) or self._number(zero) != 0:
            raise Keep("NaN among the weights becomes something else than 0")
        if len(self._readers(test.outputs[0])) != 1:
            raise Keep("where the weights are NaN is read elsewhere too")
        return select.outputs[0]
