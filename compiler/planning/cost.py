"""Work and traffic of one attention, exact from its mask: what strategies are compared by and reports show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attnc.ir.mask import MaskSet


@dataclass(frozen=True)
class Cost:
    """Visible (query, key) ``pairs`` at all outer points, ``flops`` of both contractions, ``bytes`` of all operands."""

    pairs: int
    flops: int
    bytes: int

    @property
    def intensity(self) -> float:
        """Flops per byte."""
        return self.flops / self.bytes


def attention_cost(
    mask: MaskSet,
    sizes: Mapping[str, int],
    q_length: int,
    k_length: int,
    *,
    outer: int,
    kv_outer: int,
    head_dim: int,
    value_dim: int,
    bytes_per_element: int,
) -> Cost:
    """Cost with every visible pair computed once and every element of q, k, v and out moved once.

    ``outer``, ``kv_outer``: outer points (batch times heads) of the queries and of the keys. The residual part of the
    mask depends on data and counts as visible. Raises KeyError for a size without value.
    """
    pairs = mask.count(sizes, q_length, k_length) * outer // mask.outer_points(sizes)
    width = head_dim + value_dim
    elements = width * (outer * q_length + kv_outer * k_length)
    return Cost(pairs, 2 * width * pairs, bytes_per_element * elements)
