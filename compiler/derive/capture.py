"""A model without a cache as a graph over ``[B, S]`` token ids, with its attentions found."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from attnc.compiler.derive.refusal import INPUT, STATE, NotDerivable
from attnc.compiler.frontends.torch.importer import import_graph
from attnc.compiler.hints import size_hints, user_names
from attnc.compiler.host.exported import CaptureError, Exported, capture_exported
from attnc.compiler.passes.base import Context
from attnc.compiler.passes.pipeline import PIPELINE, run_pipeline
from attnc.ir.graph import Graph

EXAMPLE = (3, 37)
"""Requests and tokens of the example: unlike each other and unlike sizes of models."""
MOST, ENCODED_MOST = 1 << 16, 1 << 12
"""The greatest batch, and the longest input of an encoder."""
ENCODED = 23
"""Encoder positions of the example."""
_MASK = "attention_mask"
LONGEST = 4096
"""The longest sequence where the model names none."""
_LENGTH_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "max_target_positions")

_SUGGESTED = re.compile(r"\b([BSEP]) = Dim\('[BSEP]'(?:, min=(\d+))?(?:, max=(\d+))?\)")
"""Bounds that torch.export proposes where it refuses those it was given."""

FINDING = tuple(p for p in PIPELINE if p.name != "choose-strategy")
"""The passes up to where kernels for whole sequences would be chosen."""


@dataclass(frozen=True)
class EncoderInput:
    """What an encoder reads: an example for some requests, and the dimension that is as long as the caller wants."""

    example: Tensor
    grows: int | None = None


@dataclass(frozen=True)
class Captured:
    """A graph with its weights and buffers, by input name."""

    graph: Graph
    state: Mapping[str, Tensor]
    tokens: str
    """The input of token ids."""
    encoder: tuple[str, ...]
    """The inputs of the encoder."""
    shortest: int
    """The least S the graph holds for: 2, unless the model asks about more."""
    longest: int
    """The greatest S the graph holds for."""
    context: Context
    examples: Mapping[str, Tensor] = field(default_factory=dict)
    """What the encoder was shown, for EXAMPLE[0] requests, by input."""


def capture(
    model: nn.Module,
    *,
    token_input: str | None = None,
    longest: int | None = None,
    encoder: Mapping[str, EncoderInput] | None = None,
) -> Captured:
    """The graph of ``model(token ids)``, caching off, no padding.

    ``token_input``: the parameter that takes i64[B, S] ids; by default ``decoder_input_ids`` where there is an encoder,
    else ``input_ids`` or the first one. ``longest``: the greatest S, by default what the model's config says.
    ``encoder``: the encoder's inputs, by default those of Hugging Face's encoder-decoders; masks among them
    (``attention_mask``) are taken as all ones. Raises NotDerivable where the model can't be exported.
    """
    given = _encoder_inputs(model) if encoder is None else dict(encoder)
    name = token_input or token_input_of(model, bool(given))
    limit = longest or longest_of(model)
    bounds = {"B": (2, MOST), "S": (2, limit), "E": (2, ENCODED_MOST)}
    program, taken = within(bounds, lambda sizes: _exported(model, name, sizes, given))
    shortest, limit = taken["S"]
    exported = functional(program, "it")
    masks = [key for key in given if _MASK in key]
    for mask in masks:
        _fill(exported, mask, next(key for key in given if key not in masks))
    graph, state, context = found(exported, type(model).__name__)
    examples = {key: encoded.example for key, encoded in given.items() if key not in masks}
    return Captured(graph, state, name, tuple(examples), shortest, limit, context, examples)


def functional(program: torch.export.ExportedProgram, writer: str) -> Exported:
    """The exported graph without writes, its buffers constants. Raises NotDerivable where ``writer`` writes to some."""
    try:
        exported = capture_exported(program)
    except CaptureError as error:
        raise NotDerivable(INPUT, str(error)) from error
    if exported.signature.mutated:
        raise NotDerivable(STATE, f"{writer} writes to {', '.join(exported.signature.mutated)}")
    exported.hold_buffers()
    return exported


def found(exported: Exported, name: str) -> tuple[Graph, dict[str, Tensor], Context]:
    """The IR graph with its attentions found, its weights by input, and what passes knew."""
    graph = import_graph(exported.graph_module, name=name)
    context = Context("cpu", size_hints(graph), user_names=user_names(graph))
    run_pipeline(graph, context, passes=FINDING)
    inputs = {value.name for value in graph.inputs}
    state = {key: tensor.detach() for key, tensor in exported.signature.state.items() if key in inputs}
    return graph, state, context


def _fill(exported: Exported, mask: str, like: str) -> None:
    """Make a mask of another input's shape all ones: a request has no padding."""
    graph = exported.graph_module.graph
    nodes = {node.name: node for node in graph.find_nodes(op="placeholder")}
    node, shape = nodes[mask], nodes[like]
    with graph.inserting_after(shape if shape > node else node):
        ones = graph.call_function(
            torch.ops.aten.ones_like.default, (shape,), {"dtype": node.meta["val"].dtype}, name=f"{mask}_ones"
        )
    ones.meta = {"val": node.meta["val"]}
    node.replace_all_uses_with(ones)
    graph.erase_node(node)
    exported.graph_module.recompile()


def _encoder_inputs(model: nn.Module) -> dict[str, EncoderInput]:
    """The encoder's input of an encoder-decoder of Hugging Face's library."""
    config = getattr(model, "config", None)
    if not getattr(config, "is_encoder_decoder", False):
        return {}
    requests = EXAMPLE[0]
    if model.main_input_name == "input_features":
        shape = (requests, config.num_mel_bins, 2 * config.max_source_positions)  # type: ignore[union-attr]
        return {"input_features": EncoderInput(torch.zeros(shape))}
    return {str(model.main_input_name): EncoderInput(torch.ones(requests, ENCODED, dtype=torch.int64), 1)}


def token_input_of(model: nn.Module, encoded: bool) -> str:
    """The input of token ids, by name, else the first one; ``encoded``: there is an encoder."""
    names = list(inspect.signature(model.forward).parameters)
    if not names:
        raise NotDerivable(INPUT, "forward takes no input")
    wanted = ("decoder_input_ids", "input_ids") if encoded else ("input_ids",)
    return next((name for name in wanted if name in names), names[0])


def longest_of(model: nn.Module) -> int:
    """The longest sequence, by what a config says."""
    config = getattr(model, "config", None)
    found = [getattr(config, name, None) for name in _LENGTH_NAMES]
    return next((n for n in found if isinstance(n, int) and n > 0), LONGEST)


def within(
    bounds: Mapping[str, tuple[int, int]],
    export: Callable[[Mapping[str, tuple[int, int]]], torch.export.ExportedProgram],
) -> tuple[torch.export.ExportedProgram, Mapping[str, tuple[int, int]]]:
    """The exported program, and the bounds of sizes it took. Raises NotDerivable.

    Some models ask whether S is their maximum, and torch.export proposes a range where they do. Where it proposes none,
    the program of long sequences alone is taken: a step has one token, so that is refused, but with its reason.
    """
    refusal: Exception | None = None
    for _ in range(3):
        try:
            return export(bounds), bounds
        except Exception as error:
            refusal, others = error, _other_bounds(bounds, str(error))
            if not others:
                break
            bounds = {**bounds, **others}
    raise NotDerivable(INPUT, f"torch.export says: {refusal}") from refusal


def _other_bounds(bounds: Mapping[str, tuple[int, int]], refusal: str) -> dict[str, tuple[int, int]]:
    """What to try after a refusal: the bounds it proposes, else longer sequences."""
    proposed = {
        size: (int(low or bounds[size][0]), int(high or bounds[size][1]))
        for size, low, high in _SUGGESTED.findall(refusal)
    }
    if proposed:
        return proposed
    longer = {"S": EXAMPLE[1] // 2, "E": 4}
    return {
        size: (low, bounds[size][1])
        for size, low in longer.items()
        if low < bounds.get(size, (0, 0))[1] and f"violated ({size})" in refusal
    }


def _exported(
    model: nn.Module, name: str, bounds: Mapping[str, tuple[int, int]], encoder: Mapping[str, EncoderInput]
) -> torch.export.ExportedProgram:
    requests, tokens = EXAMPLE
    ids = torch.arange(requests * min(tokens, bounds["S"][1])).reshape(requests, -1) % 2
    batch, length, encoded = (Dim(size, min=low, max=high) for size, (low, high) in bounds.items())
    kwargs: dict[str, Any] = {name: ids, **{key: given.example for key, given in encoder.items()}}
    shapes: dict[str, Any] = {name: {0: batch, 1: length}}
    for key, given in encoder.items():
        shapes[key] = {0: batch} if given.grows is None else {0: batch, given.grows: encoded}
    if "use_cache" in inspect.signature(model.forward).parameters:
        kwargs["use_cache"], shapes["use_cache"] = False, None
    with torch.no_grad():
        return torch.export.export(model, (), kwargs, dynamic_shapes=shapes, strict=False)
