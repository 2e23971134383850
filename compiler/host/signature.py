"""What the inputs and outputs of a captured graph are, by position and placeholder name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from attnc.compiler.frontends.torch import private
from attnc.compiler.frontends.torch.importer import SOURCE


class SignatureMismatch(Exception):
    """Export's account of the mutated inputs doesn't fit the graph it returned."""


@dataclass(frozen=True)
class Signature:
    """The leading outputs are the new values of ``mutated`` inputs; the rest are the user's."""

    mutated: tuple[str, ...] = ()
    """Placeholder names, in output order."""
    hidden: frozenset[str] = frozenset()
    """Placeholders of module buffers: autograd must not see a write to one."""
    state: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Placeholders that are bound to parameters and buffers when the graph is handed to the host."""


def dynamo_signature(gm: torch.fx.GraphModule, exported: torch.fx.GraphModule, torch_signature: Any) -> Signature:
    """The signature of a Dynamo graph's export. Labels the exported inputs with the user's names on the way.

    Raises :class:`SignatureMismatch`.
    """
    placeholders = exported.graph.find_nodes(op="placeholder")
    state = _frozen_state(gm, torch_signature)
    inputs = [node for node in placeholders if node.name not in state]
    sources = gm.graph.find_nodes(op="placeholder")
    if len(inputs) != len(sources):
        raise SignatureMismatch(f"{len(sources)} inputs became {len(inputs)}")
    hidden = set()
    for node, source in zip(inputs, sources, strict=True):
        label = private.placeholder_source(source)
        node.meta[SOURCE] = user_name(label) or source.name
        if "_buffers" in label or "_buffers" in source.name:
            hidden.add(node.name)
    return Signature(mutated_inputs(exported, torch_signature), frozenset(hidden), state)


def user_name(source: str) -> str:
    """``L['kwargs']['input_ids']`` → ``input_ids``; empty where the source is no named argument."""
    match = re.fullmatch(r"L(?:\['kwargs'\])?\['(\w+)'\]", source)
    return match[1] if match else ""


def mutated_inputs(exported: torch.fx.GraphModule, signature: Any) -> tuple[str, ...]:
    """Placeholder name of each leading output. Raises :class:`SignatureMismatch`."""
    targets = {**signature.buffers_to_mutate, **signature.parameters_to_mutate, **signature.user_inputs_to_mutate}
    fqn_placeholders = {fqn: name for name, fqn in _state_names(signature).items()}
    outputs = output_values(exported)
    count = len(outputs) - len(signature.user_outputs)
    names = [node.name if isinstance(node, torch.fx.Node) else None for node in outputs[:count]]
    if count != len(targets) or any(name not in targets for name in names):
        raise SignatureMismatch(f"{count} mutated values, {len(targets)} mutated inputs")
    return tuple(fqn_placeholders.get(targets[name], targets[name]) for name in names)


def output_values(gm: torch.fx.GraphModule) -> list[Any]:
    """The flat outputs of a graph."""
    results = gm.graph.output_node().args[0]
    return list(results) if isinstance(results, tuple | list) else [results]


def _state_names(signature: Any) -> dict[str, str]:
    return {**signature.inputs_to_parameters, **signature.inputs_to_buffers}


def _frozen_state(gm: torch.fx.GraphModule, signature: Any) -> dict[str, torch.Tensor]:
    """Tensors Dynamo left as attributes (freezing): export lifted them to leading placeholders."""
    state = {}
    for name, path in _state_names(signature).items():
        found: Any = gm
        for part in path.split("."):
            found = getattr(found, part)
        state[name] = found
    return state
