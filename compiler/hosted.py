"""A compiled graph as a program over named inputs and outputs: what is run by name, and what an artifact holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from attnc.compiler.host.ports import input_ports, output_ports
from attnc.compiler.host.to_program import to_program
from attnc.compiler.unsavable import NotSavable
from attnc.ir.graph import Graph
from attnc.runtime.artifact.manifest import Bounds, Port
from attnc.runtime.exchange import run_named
from attnc.runtime.host_bound import Bound
from attnc.runtime.host_program import HostProgram


@dataclass(frozen=True)
class Hosted:
    """A host program with its constants, inputs and outputs."""

    program: HostProgram
    constants: Mapping[str, Tensor] = field(repr=False)
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    @property
    def sizes(self) -> tuple[Bounds, ...]:
        """The named sizes with their bounds."""
        return tuple(Bounds(size.name, size.lo or 0, size.hi) for size in self.program.sizes)

    @cached_property
    def bound(self) -> Bound:
        """The program with its constants; their memory is the model's."""
        return self.program.bind(self.constants)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Results by name; see :meth:`attnc.runtime.artifact.loaded.LoadedProgram.run`."""
        written = frozenset(port.name for port in self.inputs if port.mutated)
        return run_named(self.bound, [port.name for port in self.outputs], inputs, written)


def host(module: torch.fx.GraphModule, graph: Graph, names: Sequence[str]) -> Hosted:
    """The program of a compiled graph; ``names``: of its outputs. Raises NotSavable for what has no form in one."""
    try:
        program, constants = to_program(module, graph)
    except ValueError as error:
        raise NotSavable("ATTNC-ARTIFACT-OP", str(error)) from error
    placeholders = [node.name for node in module.graph.find_nodes(op="placeholder")]
    outputs = graph.outputs[len(graph.outputs) - len(names) :]  # before them stand the new values of written inputs
    return Hosted(program, constants, input_ports(program, graph, placeholders), output_ports(names, outputs))
