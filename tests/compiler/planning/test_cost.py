"""Flops and bytes against counting by hand."""

from __future__ import annotations

from attnc.compiler.planning.cost import attention_cost
from attnc.ir import index as ix
from attnc.ir.mask import MaskSet
from attnc.ir.types import size

q, k, h = ix.axis("q"), ix.axis("k"), ix.axis("h")


def test_causal_counts_the_triangle() -> None:
    cost = attention_cost(
        MaskSet.of(k <= q), {}, 100, 100, outer=8, kv_outer=2, head_dim=64, value_dim=32, bytes_per_element=2
    )
    assert cost.pairs == 8 * 5050
    assert cost.flops == 2 * (64 + 32) * cost.pairs
    assert cost.bytes == 2 * (64 + 32) * (8 * 100 + 2 * 100)
    assert cost.intensity == cost.flops / cost.bytes


def test_a_mask_per_head_is_summed_over_heads() -> None:
    mask = MaskSet.of((k <= q) & (q - k <= h), {"h": size("H"), "b": 3})
    cost = attention_cost(mask, {"H": 4}, 10, 10, outer=12, kv_outer=12, head_dim=1, value_dim=1, bytes_per_element=4)
    assert cost.pairs == 3 * sum(min(i, head) + 1 for i in range(10) for head in range(4))
