"""A pair of models that differ in one place, and what the pairs are written with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy
from onnx import ModelProto

from benchmarks.cases.onnx_traps.graph import Array, Graph, Port, Value

H, D = 4, 8
SCALE = D**-0.5
Build = Callable[[Graph], str | tuple[str, ...]]

QKV = tuple(Port(name, ("b", H, "s", D)) for name in "qkv")
KEEP = Port("keep", ("b", "s"), "bool")
"""Which keys are no padding."""
LENGTHS: tuple[Mapping[str, int], ...] = ({"b": 2, "s": 12, "p": 5}, {"b": 3, "s": 7, "p": 2})
"""The sizes a model is run at; an import takes others for its example."""


@dataclass(frozen=True)
class Pair:
    """``trap`` and ``twin`` take the same inputs and fill a graph; they return the outputs."""

    name: str
    trap: Build
    twin: Build
    ports: tuple[Port, ...] = QKV
    opset: int = 17
    attentions: int = 1
    """How many attentions fuse in the twin."""
    random: bool = False
    """The trap draws random numbers: it must not answer as its twin does."""
    equal: bool = False
    """The trap is another way to write its twin."""

    def model(self, side: str) -> ModelProto:
        """The ``trap`` or the ``twin``."""
        graph = Graph(self.ports, self.opset)
        made = (self.trap if side == "trap" else self.twin)(graph)
        return graph.model(*((made,) if isinstance(made, str) else made))

    def inputs(self, lengths: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Random inputs of these sizes."""
        generator = numpy.random.default_rng(seed)
        return {port.name: port.array(lengths, generator) for port in self.ports}


def scores(g: Graph, q: str = "q", k: str = "k", scale: float = SCALE) -> str:
    """Scaled products of queries and keys [batch, heads, length, features]."""
    return g("Mul", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), scale)


def weigh(g: Graph, made: str, v: str = "v") -> str:
    """softmax(scores)·v."""
    return g("MatMul", g("Softmax", made, axis=-1), v)


def masked(g: Graph, keep: Value, made: str | None = None, fill: float = -1e9) -> str:
    """softmax(where(keep, scores, fill))·v."""
    return weigh(g, g("Where", keep, made or scores(g), fill))


def positions(g: Graph) -> tuple[str, str]:
    """The place of each query [s, 1] and key [1, s]."""
    line = g.line("q", 2)
    return g("Unsqueeze", line, [1]), g("Unsqueeze", line, [0])
