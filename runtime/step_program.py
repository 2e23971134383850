"""What the engine runs: a model over ragged tokens and paged keys and values, one step at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from attnc.runtime.kv.specs import GroupSpec, RaggedBatch
from attnc.runtime.kv.storage import PageStorage


class StepProgram(Protocol):
    """A causal decoder with its weights."""

    @property
    def groups(self) -> tuple[GroupSpec, ...]:
        """The layer groups its cache has to have."""

    @property
    def vocabulary(self) -> int:
        """Token ids are 0 … vocabulary − 1."""

    @property
    def max_length(self) -> int:
        """The most tokens of one request it can compute."""

    def step(self, token_ids: Tensor, batch: RaggedBatch, storage: Mapping[str, PageStorage], rows: Tensor) -> Tensor:
        """Compute the T tokens of ``batch``: write their keys and values to their slots, return logits.

        ``token_ids`` i64[T]; ``rows`` i64[R], indices into T whose logits are wanted, R may be 0; ``storage`` by name
        of layer group. Returns [R, vocabulary], of a float dtype.
        """
