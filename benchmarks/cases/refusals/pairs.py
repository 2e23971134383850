"""A model that no generator can be made of, and one that differs in one op and is a decoder like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.cases.refusals.net import LIMIT, VOCABULARY, Net, Part, Parts, net
from benchmarks.cases.refusals.oracle import SIZES, Inputs, violations


@dataclass(frozen=True)
class Pair:
    """``bad`` and ``twin`` make models of token ids int64 [B, S] that return logits [B, S, V]."""

    name: str
    bad: Callable[[], nn.Module]
    twin: Callable[[], nn.Module]
    reason: str
    """A word or two that a refusal's message should hold, in lower case."""
    violates: str
    """A property of a decoder that ``bad`` lacks: a key of ``PROPERTIES``."""
    exports: bool = True
    """Whether ``torch.export`` takes ``bad`` with dynamic batch and length; the twin always can."""
    least: int = 2
    """The smallest length that ``torch.export`` takes: below, strides would be those of another view."""

    def dynamic(self) -> dict[str, dict[int, Any]]:
        """``dynamic_shapes`` for ``torch.export``."""
        batch, length = torch.export.Dim("B", min=2, max=64), torch.export.Dim("S", min=self.least, max=LIMIT)
        return {"input_ids": {0: batch, 1: length}}


def pair(
    name: str, reason: str, violates: str, least: int = 2, exports: bool = True, **parts: tuple[Part, Part]
) -> Pair:
    """Two nets whose ``parts`` are (bad, twin)."""
    bad, twin = (Parts(**{spot: choice[i] for spot, choice in parts.items()}) for i in (0, 1))
    return Pair(name, lambda: net(bad), lambda: net(twin), reason, violates, exports, least)


def draw(batch: int, length: int, seed: int) -> Inputs:
    """Fresh random tokens int64 [batch, length]."""
    ids = torch.randint(0, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids}


def judged(model: nn.Module, sizes: Sequence[tuple[int, int]] = SIZES) -> dict[str, float]:
    """The properties of a decoder that a model lacks at (batch, length), and by how much, in float64."""
    wide = model.double()

    def call(inputs: Inputs, severed: bool = False) -> Tensor:
        if isinstance(wide, Net):
            wide.severed = severed
        with torch.no_grad():
            logits: Tensor = wide(**inputs)
        return logits

    return violations(call, draw, severed=lambda inputs: call(inputs, severed=True), sizes=sizes)
