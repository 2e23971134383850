"""A model with a past as a module of ids and tensors, and its export with P earlier and S new tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from attnc.compiler.derive.past.held import Kept, given, ids, logits_of, others
from attnc.compiler.derive.past.roles import ModelCache
from attnc.compiler.derive.refusal import CACHE, INPUT, NotDerivable

REQUESTS, EARLIER, NEW = 3, 11, 7
"""Sizes of the example, unlike each other."""


@dataclass(frozen=True)
class Layout:
    """Which dimension of each tensor of the past grows with the tokens; None: a buffer of fixed length, or a count."""

    grows: tuple[int | None, ...]
    places: int | None = None
    """How many tokens a buffer of fixed length seems to hold."""


def layout_of(kept: Kept, cache: ModelCache, tokens: str) -> Layout:
    """The layout of a past, by running the model on a few tokens. Raises NotDerivable."""
    first = next((x for x in kept.examples if x.dim()), None)
    refusal: Exception | None = None
    for earlier in (*(first.shape[1:] if first is not None else ()), 0):
        inputs = {tokens: ids(REQUESTS, NEW), **others(cache, REQUESTS, earlier, NEW)}
        try:
            with torch.no_grad():
                _, after = kept.run([x.clone() for x in kept.examples], inputs)
        except Exception as error:
            refusal = error
            continue
        found = _grown(kept.examples, after, earlier)
        if found is not None:
            return found
    raise NotDerivable(INPUT, f"the model can't be run on its past: {refusal or 'it changes shape otherwise'}")


def _grown(before: tuple[Tensor, ...], after: list[Tensor], earlier: int) -> Layout | None:
    """Where shapes grow from ``earlier`` by the new tokens; None where they change otherwise."""
    grows: list[int | None] = []
    for old, new in zip(before, after, strict=True):
        changed = [d for d in range(old.dim()) if new.dim() != old.dim() or new.shape[d] != old.shape[d]]
        if len(changed) > 1 or any((old.shape[d], new.shape[d]) != (earlier, earlier + NEW) for d in changed):
            return None
        grows.append(changed[0] if changed else None)
    if all(place is None for place in grows):
        return Layout(tuple(grows), _places(after)) if earlier == 0 else None
    return Layout(tuple(grows))


def _places(after: list[Tensor]) -> int | None:
    """The shortest dimension of buffers of zeros of which the new tokens wrote the beginning; None: there is none."""
    found = []
    for tensor in after:
        for d in range(1, tensor.dim()):
            written = tensor.movedim(d, 0).flatten(1).ne(0).any(1).nonzero().flatten().tolist()
            if written == list(range(NEW)) and tensor.shape[d] > NEW:
                found.append(tensor.shape[d])
    return min(found, default=None)


class Step(nn.Module):
    """``model`` on ids [B, S] after P tokens, which P ``earlier`` numbers [P] count."""

    def __init__(self, model: nn.Module, kept: Kept, cache: ModelCache, layout: Layout, tokens: str) -> None:
        super().__init__()
        self.model = model
        self.kept, self.cache, self.layout, self.tokens = kept, cache, layout, tokens

    def forward(self, tokens: Tensor, past: list[Tensor], earlier: Tensor) -> tuple[Tensor, ...]:
        """Logits, the past as it is then, and counts as they are then."""
        count, (batch, new) = earlier.shape[0], tokens.shape
        inputs: dict[str, Any] = {self.tokens: tokens}
        inputs |= {name: given(role, batch, count, new) for name, role in self.cache.roles.items()}
        waiting = iter(past)
        tensors = [
            torch.full((), count, dtype=example.dtype) if example.dim() == 0 else self._own(next(waiting), place)
            for example, place in zip(self.kept.examples, self.layout.grows, strict=True)
        ]
        output, after = self.kept.run(tensors, inputs)
        return (logits_of(output), *(x for x in after if x.dim()), *(x for x in after if not x.dim()))

    def _own(self, tensor: Tensor, place: int | None) -> Tensor:
        """A buffer is written in place: a copy of the input is."""
        return tensor.clone() if place is None else tensor


def bounds_of(longest: int) -> dict[str, tuple[int, int]]:
    """Ranges of the sizes: P and S are at most ``longest`` together, so that no table or buffer ends within a step.

    Raises NotDerivable where that leaves no range.
    """
    new = longest // 4
    if new < 3:
        raise NotDerivable(INPUT, f"a model of {longest} tokens at most: a step and its past need 12")
    return {"B": (2, 1 << 16), "S": (2, new), "P": (2, longest - new)}


def exported(
    model: nn.Module, kept: Kept, cache: ModelCache, tokens: str, bounds: Mapping[str, tuple[int, int]], layout: Layout
) -> torch.export.ExportedProgram:
    """The exported program of one step."""
    batch, new, earlier = (Dim(size, min=low, max=high) for size, (low, high) in bounds.items())
    held = [(x, place) for x, place in zip(kept.examples, layout.grows, strict=True) if x.dim()]
    if any(x.shape[0] != REQUESTS for x, _ in held):
        raise NotDerivable(CACHE, "a tensor of the past doesn't begin with the requests")
    size = min(EARLIER, bounds["P"][1])
    past = [long(x, place, size) for x, place in held]
    step = Step(model, kept, cache, layout, tokens)
    with torch.no_grad():
        return torch.export.export(
            step,
            (ids(REQUESTS, min(NEW, bounds["S"][1])), past, torch.arange(size)),
            dynamic_shapes={
                "tokens": {0: batch, 1: new},
                "past": [{0: batch} if place is None else {0: batch, place: earlier} for _, place in held],
                "earlier": {0: earlier},
            },
            strict=False,
        )


def long(example: Tensor, place: int | None, length: int) -> Tensor:
    """Zeros like a tensor of the past, for so many tokens; ``place``: the dimension that counts them."""
    shape = list(example.shape)
    if place is not None:
        shape[place] = length
    return example.new_zeros(shape)
