"""A model that keeps keys and values of its own as a graph that doesn't."""

from __future__ import annotations

from collections.abc import Mapping

import sympy
import torch
from torch import nn

from attnc.compiler.derive.capture import (
    Captured,
    EncoderInput,
    capture,
    found,
    functional,
    longest_of,
    token_input_of,
    within,
)
from attnc.compiler.derive.past.axes import PastAxes
from attnc.compiler.derive.past.check import prove
from attnc.compiler.derive.past.empty import without_past
from attnc.compiler.derive.past.held import Kept, kept, written
from attnc.compiler.derive.past.roles import ModelCache, cache_of
from attnc.compiler.derive.past.start import check_start
from attnc.compiler.derive.past.wrapper import REQUESTS, Layout, bounds_of, exported, layout_of
from attnc.compiler.derive.refusal import CACHE, INPUT, STATE, NotDerivable
from attnc.compiler.fuse.layout import tensor_type
from attnc.ir.graph import Graph
from attnc.ir.types import Dim
from attnc.ir.values import Value

TOKENS, PAST, EARLIER = "tokens", "past", "earlier"
"""What the inputs of a step are called, the past's with a number behind."""


def captured(
    model: nn.Module,
    *,
    token_input: str | None = None,
    longest: int | None = None,
    encoder: Mapping[str, EncoderInput] | None = None,
    cache: ModelCache | None = None,
) -> Captured:
    """The graph of ``model(token ids)``, of whole sequences; a cache of its own is taken out. Raises NotDerivable."""
    name = token_input or token_input_of(model, bool(encoder))
    found = None if encoder and cache is None else cache_of(model, cache, name)
    if found is None:
        try:
            return capture(model, token_input=token_input, longest=longest, encoder=encoder)
        except NotDerivable as refusal:
            found = None if encoder or refusal.code not in (STATE, INPUT) else _buffered(model, name)
            if found is None:
                raise
    if encoder:
        raise NotDerivable(CACHE, "a decoder that reads an encoder is taken without a cache of its own")
    return capture_past(model, found, name, longest or longest_of(model))


def _buffered(model: nn.Module, tokens: str) -> ModelCache | None:
    """How a model that writes to its own buffers does so; None for one that doesn't."""
    try:
        found = cache_of(model, ModelCache(), tokens)
        return found if found is not None and written(model, found, tokens) else None
    except NotDerivable:
        return None


def capture_past(model: nn.Module, cache: ModelCache, tokens: str, longest: int) -> Captured:
    """The graph of a model with a past, without it: proved, not assumed. Raises NotDerivable."""
    held = kept(model, cache, tokens, REQUESTS)
    layout = layout_of(held, cache, tokens)
    program, bounds = _exported(model, held, cache, tokens, layout, longest)
    if bounds["P"][0] > 2:
        raise NotDerivable(INPUT, f"the model takes no past shorter than {bounds['P'][0]} tokens")
    graph, state, context = found(functional(program, "beside its cache it"), type(model).__name__)
    past = [value for value in graph.inputs if value.name.startswith(f"{PAST}_")]
    ids = next(value for value in graph.inputs if value.name == TOKENS)
    proved = prove(graph, _axes(graph, ids), ids, state, past)
    most = min(bounds["P"][1] + bounds["S"][1], *proved.places)
    whole = without_past(proved, tokens, most)
    names = {value.name for value in whole.inputs}
    fixed = {name: tensor for name, tensor in state.items() if name in names}
    check_start(held, cache, layout, whole, tokens, fixed)
    return Captured(whole, fixed, tokens, (), bounds["S"][0], most, context)


def _exported(
    model: nn.Module, held: Kept, cache: ModelCache, tokens: str, layout: Layout, longest: int
) -> tuple[torch.export.ExportedProgram, Mapping[str, tuple[int, int]]]:
    """The exported step, and the ranges of its sizes.

    Where slices of a buffer end with it, nothing longer can be traced. Where it is written by index, longer sequences
    are traced first: a buffer written round and round is no different from another as long as it isn't full.
    """
    try:
        return within(bounds_of(longest), lambda sizes: exported(model, held, cache, tokens, sizes, layout))
    except NotDerivable:
        if layout.places is None or layout.places >= longest:
            raise
    return within(bounds_of(layout.places), lambda sizes: exported(model, held, cache, tokens, sizes, layout))


def _axes(graph: Graph, ids: Value) -> PastAxes:
    earlier = next(value for value in graph.inputs if value.name == EARLIER)
    batch, new = tensor_type(ids).shape
    (count,) = tensor_type(earlier).shape
    return PastAxes(_symbol(batch), _symbol(new), None, None, {}, _symbol(count))


def _symbol(length: Dim) -> sympy.Symbol:
    if not isinstance(length, sympy.Symbol):
        raise NotDerivable(INPUT, f"the batch, the new or the earlier tokens can't vary: one is {length}")
    return length
