"""Inputs on which rewrites of attention go wrong: short and odd lengths, dead rows, NaN and inf behind a mask.

Made from the inputs a graph was captured with, by its types: a named size takes another value, an input called a mask
gets another content, what such a mask hides is poisoned. Sizes that are fixed in the graph stay as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch

from attnc.compiler.inspection.pictures import number
from attnc.ir.graph import Graph
from attnc.ir.types import ScalarType, TensorType
from attnc.ir.values import Value

POISON = {"NaN": float("nan"), "inf": float("inf")}
POISONED = ("left padding in a row", "right padding in a row")
"""Masks with poison behind them. What reaches the values makes a whole row NaN, in the source too (0·NaN), so others
must stay clean for there to be something to compare."""
ODD = 3
"""The least odd length above one."""

Inputs = list[Any]
"""One for each input of the graph."""


def input_sets(graph: Graph, inputs: Sequence[Any], names: Mapping[str, str]) -> dict[str, Inputs]:
    """Named sets of inputs. ``names``: for each input that is data (no weight) the name its user knows it by."""
    sets = dict(_lengths(graph, inputs))
    for mask in graph.inputs:
        if mask.name in names and _is_mask(mask, names[mask.name]):
            sets |= _masks(graph, inputs, mask, names)
    for value in graph.inputs:
        if value.name in names and _is_sequence(value):
            sets |= _last(graph, inputs, value, names[value.name])
    return sets


# -- sizes ---------------------------------------------------------------------------------------------------------


def _lengths(graph: Graph, inputs: Sequence[Any]) -> Iterator[tuple[str, Inputs]]:
    """Each named size at its least and at an odd value, and all at their least."""
    known = learn_sizes(graph, inputs)
    least = {name: max(1, graph.sizes[name].lo) for name in known}
    for name in known:
        odd = max(ODD, least[name] + 1 - least[name] % 2)
        hi = graph.sizes[name].hi
        for length in sorted({least[name], odd if hi is None or odd <= hi else least[name]} - {known[name]}):
            yield f"{name} = {length}", resized(graph, inputs, {**known, name: length})
    if len(known) > 1:
        yield ", ".join(f"{name} = {length}" for name, length in least.items()), resized(graph, inputs, least)


def learn_sizes(graph: Graph, inputs: Sequence[Any]) -> dict[str, int]:
    """Named size → its value in the inputs, where an input has it as a whole dimension."""
    known: dict[str, int] = {}
    for value, given in zip(graph.inputs, inputs, strict=True):
        if isinstance(value.type, TensorType) and isinstance(given, torch.Tensor):
            for dim, length in zip(value.type.shape, given.shape, strict=True):
                if isinstance(dim, sympy.Symbol) and dim.name in graph.sizes:
                    known.setdefault(dim.name, length)
    return known


def resized(graph: Graph, inputs: Sequence[Any], sizes: Mapping[str, int]) -> Inputs:
    """The inputs at other sizes: tensors cut, or continued from their start."""
    return [_resize(value, given, sizes) for value, given in zip(graph.inputs, inputs, strict=True)]


def _resize(value: Value, given: Any, sizes: Mapping[str, int]) -> Any:
    try:
        if isinstance(value.type, TensorType):
            for axis, dim in enumerate(value.type.shape):
                if not isinstance(dim, int):
                    places = torch.arange(number(dim, sizes)) % given.shape[axis]
                    given = given.index_select(axis, places.to(given.device))
        elif isinstance(value.type, ScalarType) and value.type.expr is not None:
            return number(value.type.expr, sizes)
    except KeyError:  # a size that no input shows: what depends on it stays
        pass
    return given


# -- masks ---------------------------------------------------------------------------------------------------------


def _is_mask(value: Value, name: str) -> bool:
    """An integer or boolean tensor of (batch, position) that is called a mask or padding."""
    kind = value.type
    called = any(word in name.lower() for word in ("mask", "pad"))
    return called and isinstance(kind, TensorType) and kind.rank == 2 and not kind.dtype.is_float


def _masks(graph: Graph, inputs: Sequence[Any], mask: Value, names: Mapping[str, str]) -> dict[str, Inputs]:
    place = graph.inputs.index(mask)
    name, given = names[mask.name], inputs[place]
    sets: dict[str, Inputs] = {}
    for title, content in _contents(given).items():
        changed = [*inputs]
        changed[place] = content
        sets[f"{name}: {title}"] = changed
        if title not in POISONED:
            continue
        hides = {"": content == 0}
        if given.dtype is torch.bool:  # which may mean either
            hides[", where True"] = content
        for (ending, hidden), (word, poison) in itertools.product(hides.items(), POISON.items()):
            for where, poisoned in _behind(graph, changed, hidden, names, poison):
                sets[f"{name}: {title}, {word} behind it in {where}{ending}"] = poisoned
    return sets


def _contents(mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Contents of a padding mask: with a causal mask, left padding makes rows that see nothing."""
    rows, length = mask.shape
    seen = torch.ones_like(mask)
    half, first = (length + 1) // 2, torch.arange(rows, device=mask.device)[:, None] == 0
    late = torch.arange(length, device=mask.device)[None, :] >= half
    return {
        "left padding": seen * late,
        "right padding": seen * ~late,
        "left padding in a row": seen * (late | ~first),
        "right padding in a row": seen * ~(late & first),
        "a row of padding": seen * ~first,
        "all padding": torch.zeros_like(mask),
        "no padding": seen,
    }


def _behind(
    graph: Graph, inputs: Inputs, hidden: torch.Tensor, names: Mapping[str, str], poison: float
) -> Iterator[tuple[str, Inputs]]:
    """Inputs poisoned where ``hidden`` [batch, position]: each float input on its own, and the token that is there."""
    for place, value in enumerate(graph.inputs):
        if value.name in names and _is_sequence(value) and inputs[place].shape[0] == hidden.shape[0]:
            where = _along(hidden, inputs[place])
            if where is not None:
                changed = [*inputs]
                changed[place] = inputs[place].masked_fill(where, poison)
                yield names[value.name], changed
    yield from _behind_tokens(graph, inputs, hidden, poison)


def _along(hidden: torch.Tensor, data: torch.Tensor) -> torch.Tensor | None:
    """``hidden`` shaped to broadcast over ``data``, whose last axis but one is position; None if not as long."""
    if data.shape[-2] != hidden.shape[1]:
        return None
    return hidden.reshape(hidden.shape[0], *[1] * (data.dim() - 3), hidden.shape[1], 1)


def _behind_tokens(graph: Graph, inputs: Inputs, hidden: torch.Tensor, poison: float) -> Iterator[tuple[str, Inputs]]:
    """A token that nothing else uses gets a poisoned row in the embedding, and stands wherever ``hidden``."""
    for op in graph.ops:
        if op.name != "aten.embedding.default" or not all(v in graph.inputs for v in op.operands[:2]):
            continue
        table, ids = (graph.inputs.index(v) for v in op.operands[:2])
        if inputs[ids].shape != hidden.shape:
            continue
        used = set(inputs[ids][~hidden].tolist())
        token = next((i for i in range(len(inputs[table])) if i not in used), None)
        if token is not None:
            changed = [*inputs]
            changed[table] = inputs[table].detach().clone()
            changed[table][token] = poison
            changed[ids] = inputs[ids].masked_fill(hidden, token)
            yield "the embedding", changed


# -- float inputs --------------------------------------------------------------------------------------------------


def _is_sequence(value: Value) -> bool:
    """A float tensor of at least (batch, position, feature)."""
    return isinstance(value.type, TensorType) and value.type.rank >= 3 and value.type.dtype.is_float


def _last(graph: Graph, inputs: Sequence[Any], value: Value, name: str) -> Iterator[tuple[str, Inputs]]:
    """The last position poisoned, which a causal mask hides from every row but the last."""
    place = graph.inputs.index(value)
    for word, poison in POISON.items():
        changed = [*inputs]
        changed[place] = inputs[place].clone()
        changed[place][..., -1, :] = poison
        yield f"{word} in the last position of {name}", changed
