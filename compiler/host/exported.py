"""``torch.export`` programs, captured for the same passes as Dynamo graphs.

An exported graph is not functional until ``run_decompositions``, which also writes autocast regions as casts and drops
grad-mode regions: what comes out is for inference.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from attnc.compiler.frontends.torch.fastpath import DECOMPOSITIONS
from attnc.compiler.frontends.torch.importer import SOURCE
from attnc.compiler.host.freezing import unlift
from attnc.compiler.host.mutation import put_back
from attnc.compiler.host.signature import Signature

_STATE = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_MUTATION = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


class CaptureError(Exception):
    """A program that cannot be made functional over plain tensors."""


@dataclass(eq=False)
class Exported:
    """A captured program; parameters, buffers and constants are leading inputs of its graph."""

    program: ExportedProgram
    """The program as exported: its calling convention."""
    graph_module: torch.fx.GraphModule
    signature: Signature

    def hold_buffers(self) -> None:
        """Make constants of all state but parameters, so that passes read masks and tables in it: none may change."""
        state = {name: held for name, held in self.signature.state.items() if not isinstance(held, torch.nn.Parameter)}
        unlift(self.graph_module, dataclasses.replace(self.signature, state=state))

    @property
    def out_spec(self) -> pytree.TreeSpec:
        """The structure of the user's outputs."""
        spec: pytree.TreeSpec = self.program.call_spec.out_spec
        return spec

    def finished(self, module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        """``module`` (the graph after the passes) with mutations put back and the live state bound, in place.

        What remains takes the flat user inputs and returns a tuple of the flat user outputs.
        """
        put_back(module, self.signature)
        unlift(module, self.signature)
        return module

    def call(self, module: torch.fx.GraphModule, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a finished module as the exported one is called. Raises ValueError for inputs of another structure."""
        leaves, spec = pytree.tree_flatten((args, dict(kwargs)))
        if spec != self.program.call_spec.in_spec:
            wanted = self.program.call_spec.in_spec
            raise ValueError(f"calling the exported program: the inputs are {spec}, it was exported with {wanted}")
        return pytree.tree_unflatten(list(module(*leaves)), self.program.call_spec.out_spec)

    def example_inputs(self) -> list[Any]:
        """The user inputs as fakes, in order."""
        nodes = self.graph_module.graph.find_nodes(op="placeholder")
        return [node.meta["val"] for node in nodes if node.name not in self.signature.state]


def capture_exported(program: ExportedProgram) -> Exported:
    """The functional graph of a program; composite operators (linear, softmax) stay whole.

    Raises :class:`CaptureError` for a program with inputs that are no tensors or numbers (custom objects, effect
    tokens), or one that torch can't make functional.
    """
    try:
        functional = program.run_decompositions(dict(DECOMPOSITIONS))
    except Exception as error:
        raise CaptureError(
            f"making the exported program functional: torch's run_decompositions says {error}"
        ) from error
    for spec in functional.graph_signature.input_specs:
        if spec.kind not in (*_STATE, InputKind.USER_INPUT):
            raise CaptureError(f"capturing the exported program: input {spec.arg} is a {spec.kind.name}, not a tensor")
    gm = torch.fx.GraphModule(functional.graph_module, copy.deepcopy(functional.graph))
    for node in gm.graph.find_nodes(op="placeholder"):
        node.meta[SOURCE] = node.name
    return Exported(program, gm, _signature(functional))


def _signature(program: ExportedProgram) -> Signature:
    tensors = {**program.state_dict, **program.constants}
    specs = program.graph_signature.input_specs
    state = {s.arg.name: tensors[str(s.target)] for s in specs if s.kind in _STATE}
    by_target = {s.target: s.arg.name for s in specs if s.target is not None}
    mutated = tuple(
        by_target.get(s.target, str(s.target)) for s in program.graph_signature.output_specs if s.kind in _MUTATION
    )
    hidden = frozenset(s.arg.name for s in specs if s.kind is InputKind.BUFFER)
    return Signature(mutated, hidden, state)
