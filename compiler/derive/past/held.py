"""Where a model keeps keys and values: tensors it is given and gives back, a cache object, or its own buffers."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from attnc.compiler.derive.past.roles import InputRole, ModelCache
from attnc.compiler.derive.refusal import CACHE, INPUT, NotDerivable

_SLOTS = ("keys", "values", "cumulative_length")
"""Tensors of a layer of Hugging Face's cache objects."""


@dataclass(frozen=True)
class Kept:
    """Tensors that hold a past, and how a model is run with others in their place."""

    examples: tuple[Tensor, ...]
    run: Callable[[Sequence[Tensor], Mapping[str, Any]], tuple[Any, list[Tensor]]]
    """Takes such tensors and the other inputs; gives what the model returns, and the tensors as they are then."""


def kept(model: nn.Module, cache: ModelCache, tokens: str, batch: int) -> Kept:
    """Where a model keeps its past, with examples for ``batch`` requests. Raises NotDerivable."""
    if cache.past is None:
        return _buffers(model, cache, tokens, batch)
    example = cache.example
    if example is None:
        example = _presents(_call(model, others(cache, batch, 0, 11) | {tokens: ids(batch, 11)} | _caching(model)))
    if hasattr(example, "layers"):
        return _object(model, cache.past, example, batch)
    leaves, spec = pytree.tree_flatten(example)
    if not leaves or not all(isinstance(leaf, Tensor) and leaf.dim() for leaf in leaves):
        raise NotDerivable(INPUT, f"{cache.past!r} isn't made of tensors: give an example of it (ModelCache.example)")

    def run(tensors: Sequence[Tensor], others: Mapping[str, Any]) -> tuple[Any, list[Tensor]]:
        past = pytree.tree_unflatten(list(tensors), spec)
        output = model(**others, **{str(cache.past): past}, **_caching(model))
        presents, after = pytree.tree_flatten(_presents(output))
        if after != spec:
            raise NotDerivable(CACHE, f"the model gives back {after}, and takes {spec}")
        return output, presents

    return Kept(tuple(_with_batch(leaf, batch) for leaf in leaves), run)


def _object(model: nn.Module, name: str, example: Any, batch: int) -> Kept:
    """A cache object, whose layers hold tensors."""
    slots = [(i, slot) for i, layer in enumerate(example.layers) for slot in _SLOTS if _holds(layer, slot)]
    if not slots:
        raise NotDerivable(INPUT, f"the example of {name!r} holds no tensors")

    def run(tensors: Sequence[Tensor], others: Mapping[str, Any]) -> tuple[Any, list[Tensor]]:
        past = copy.copy(example)
        past.layers = [copy.copy(layer) for layer in example.layers]
        for (i, slot), tensor in zip(slots, tensors, strict=True):
            setattr(past.layers[i], slot, tensor)
        output = model(**others, **{name: past}, **_caching(model))
        return output, [getattr(past.layers[i], slot) for i, slot in slots]

    return Kept(tuple(_with_batch(getattr(example.layers[i], slot), batch) for i, slot in slots), run)


def _holds(layer: Any, slot: str) -> bool:
    return isinstance(getattr(layer, slot, None), Tensor)


def _buffers(model: nn.Module, cache: ModelCache, tokens: str, batch: int) -> Kept:
    """The buffers that a run of the model writes to."""
    buffers, names = dict(model.named_buffers()), written(model, cache, tokens)
    if not names:
        raise NotDerivable(CACHE, "the model has no input of earlier keys and values, and writes to no buffer")

    def run(tensors: Sequence[Tensor], others: Mapping[str, Any]) -> tuple[Any, list[Tensor]]:
        held = dict(zip(names, tensors, strict=True))
        output = functional_call(model, held, (), dict(others))
        return output, list(held.values())

    return Kept(tuple(_with_batch(buffers[name], batch) for name in names), run)


def written(model: nn.Module, cache: ModelCache, tokens: str) -> list[str]:
    """Names of the buffers that a run on two tokens writes to; it runs on copies. Raises NotDerivable."""
    buffers, refusal = dict(model.named_buffers()), None
    for requests in dict.fromkeys((1, *(buffer.shape[0] for buffer in buffers.values() if buffer.dim()))):
        copies = {name: buffer.clone() for name, buffer in buffers.items()}
        versions = {name: buffer._version for name, buffer in copies.items()}
        try:
            with torch.no_grad():
                functional_call(model, copies, (), others(cache, requests, 0, 2) | {tokens: ids(requests, 2)})
        except Exception as error:
            refusal = str(error)
            continue
        return [name for name, buffer in copies.items() if buffer._version != versions[name]]
    raise NotDerivable(INPUT, f"the model can't be run on two tokens: {refusal}")


def _with_batch(tensor: Tensor, batch: int) -> Tensor:
    """Zeros like a tensor, for ``batch`` requests; a count has no batch."""
    return tensor.new_zeros((batch, *tensor.shape[1:]) if tensor.dim() else ())


def ids(batch: int, length: int) -> Tensor:
    """Token ids i64 [batch, length], as small as any vocabulary."""
    return torch.arange(batch * length).reshape(batch, length) % 2


def others(cache: ModelCache, batch: int, earlier: int, length: int) -> dict[str, Any]:
    """The other inputs that a model wants, for so many earlier and new tokens."""
    return {name: given(role, batch, earlier, length) for name, role in cache.roles.items()}


def given(role: InputRole, batch: int, earlier: int, length: int) -> Tensor | int:
    """What an input is for ``batch`` requests with ``earlier`` tokens before ``length`` new ones."""
    match role:
        case InputRole.POSITIONS:
            return torch.arange(earlier, earlier + length)
        case InputRole.ROWS:
            return torch.arange(earlier, earlier + length)[None].expand(batch, length)
        case InputRole.MASK:
            return torch.ones(batch, earlier + length, dtype=torch.int64)
    return earlier


def _caching(model: nn.Module) -> dict[str, Any]:
    """``use_cache=True`` where the model can be told."""
    return {"use_cache": True} if "use_cache" in inspect.signature(model.forward).parameters else {}


def _call(model: nn.Module, inputs: Mapping[str, Any]) -> Any:
    try:
        with torch.no_grad():
            return model(**inputs)
    except Exception as error:
        reason = f"without a past the model can't be run: {error}; give an example of its past (ModelCache.example)"
        raise NotDerivable(INPUT, reason) from error


def logits_of(output: Any) -> Tensor:
    """The logits in what a model returns: a tensor, or the first part."""
    found = output if isinstance(output, Tensor) else output[0]
    if not isinstance(found, Tensor):
        raise NotDerivable(INPUT, "the first part of what the model returns is no tensor")
    return found


def _presents(output: Any) -> Any:
    """Keys and values in what a model returns: under their name, or the second part."""
    named = getattr(output, "past_key_values", None)
    if named is not None:
        return named
    if isinstance(output, Tensor) or not isinstance(output, tuple | list) or len(output) < 2:
        raise NotDerivable(CACHE, "the model takes a past and gives none back")
    return output[1]
