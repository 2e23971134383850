"""Whether a model is a causal decoder, by running it: no analysis, no compiler.

Two runs that differ in one thing are compared in the rows that thing must not reach. What is found is a lower bound: a
model without violations here may still have one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

Inputs = dict[str, Tensor]
"""Keyword arguments, each with the batch as its first dimension."""
Call = Callable[[Inputs], Tensor]
"""Logits [B, S, V] of inputs."""

PROPERTIES: Mapping[str, str] = {
    "repeat": "a second run gives the same",
    "later": "tokens after a row don't reach it",
    "batch": "other rows of the batch don't reach a row, nor what their encoders read",
    "alone": "a row without its batch is the same",
    "length": "a row is the same where the sequence ends earlier",
    "state": "with every attention cut to its own key, a row knows its own token and position only",
}
"""What holds of a decoder whose only memory is the keys and values of attention, in the order they are tried."""
SIZES = ((3, 8), (4, 12))
"""(batch, length) of the runs; half of a length is even."""


def violations(
    call: Call,
    draw: Callable[[int, int, int], Inputs],
    tokens: str = "input_ids",
    severed: Call | None = None,
    sizes: Sequence[tuple[int, int]] = SIZES,
    tolerance: float = 1e-9,
) -> dict[str, float]:
    """The properties that don't hold, and by how much: the largest change of a logit over the largest logit.

    ``draw(batch, length, seed)`` makes fresh inputs, ``tokens`` is the one whose second dimension is the sequence,
    ``severed`` is the model with attention cut. Where two runs on the same inputs differ, nothing else is tried.
    """
    found: dict[str, float] = {}
    for batch, length in sizes:
        first, other = (draw(batch, length, seed) for seed in (2 * length, 2 * length + 1))
        for name, change in _changes(call, severed, first, other, tokens):
            if change > tolerance:
                found[name] = max(change, found.get(name, 0.0))
                if name == "repeat":
                    return found
    return found


def responds(call: Call, inputs: Inputs, tokens: str = "input_ids") -> float:
    """How much a token changes its own row, at the least: the largest change of a logit over the largest logit."""
    ids, base = inputs[tokens], call(inputs)
    changed = [call({**inputs, tokens: _moved(ids, t, t + 1)})[:, t] for t in range(ids.shape[1])]
    least = min((row - base[:, t]).abs().amax(-1).min().item() for t, row in enumerate(changed))
    return least / base.abs().max().item()


def _changes(
    call: Call, severed: Call | None, inputs: Inputs, other: Inputs, tokens: str
) -> Iterator[tuple[str, float]]:
    """Each property that was tried, and how far it is from holding."""
    ids, base = inputs[tokens], call(inputs)
    length = ids.shape[1]
    yield "repeat", difference(base, call(inputs))
    for at in (length // 2 - 1, length - 2):  # an odd and an even one
        after = call({**inputs, tokens: _moved(ids, at + 1, length)})
        yield "later", difference(base[:, : at + 1], after[:, : at + 1])
    half, row = length // 2, slice(1, 2)
    yield "length", difference(base[:, :half], call({**inputs, tokens: ids[:, :half]}))
    mixed = {name: torch.cat((other[name][:1], x[row], other[name][2:])) for name, x in inputs.items()}
    yield "batch", difference(base[row], call(mixed)[row])
    yield "alone", difference(base[row], call({name: x[row] for name, x in inputs.items()}))
    if severed is not None:
        at = half - 1
        before = severed({**inputs, tokens: _moved(ids, 0, at)})
        yield "state", difference(severed(inputs)[:, at:], before[:, at:])


def difference(a: Tensor, b: Tensor) -> float:
    """max|a - b| / max|a|; infinite where one of them has a number that isn't finite."""
    if not (a.isfinite().all() and b.isfinite().all()):
        return float("inf")
    return (a - b).abs().max().item() / a.abs().max().item()


def _moved(ids: Tensor, start: int, end: int) -> Tensor:
    """``ids`` with other tokens in columns ``start`` to ``end``, below the largest there is."""
    changed, top = ids.clone(), int(ids.max())
    changed[:, start:end] = (ids[:, start:end] + 1 + torch.arange(end - start) % 3) % top
    return changed
