"""The attributes of ``attn.attention``: what one attention means, free of sizes, strides and target.

Every operand dimension is named by one *axis*. ``q[b, h, g, q, d] · k[b, h, k, d]`` reads like an einsum: an axis of q
that k lacks is a broadcast, so MHA, GQA, MQA and cross attention are the same attribute with other axes. The axis
names ``q`` (query position), ``k`` (key position), ``d`` (contracted) and ``e`` (value feature) are reserved; every
other name is an outer (batch or head) axis. Formulas may use every axis but ``d`` and ``e``.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from attnc.ir.score import Node
from attnc.ir.types import DType

QUERY, KEY, CONTRACTED, FEATURE = "q", "k", "d", "e"


@dataclass(frozen=True)
class Fill:
    """What a masked score becomes: None is minus infinity, else the finite value the source wrote."""

    value: float | None = None


@dataclass(frozen=True)
class AttentionSpec:
    """One attention.

    out[outer, q, e] = Σ_k softmax_k(score) · weight · v[outer, k, e], over every key k, with ``score`` as the source
    wrote it. ``mask`` is a necessary and sufficient condition for a key to count in a row that has any visible key;
    there ``visible`` equals ``score``. Side operands are named ``t0``, ``t1``, … in formulas, in operand order.
    """

    q_axes: tuple[str, ...]
    k_axes: tuple[str, ...]
    v_axes: tuple[str, ...]
    out_axes: tuple[str, ...]
    """Order of the result's dimensions; the result is contiguous in it."""
    score: Node
    """The score as written, fills included; leaf ``qk`` is Σ_d q·k."""
    visible: Node
    """The score where ``mask`` holds."""
    mask: sympy.Basic
    """A boolean index expression (``sympy.true`` where every key is visible)."""
    fill: Fill
    out_dtype: DType
    softmax_dtype: DType = DType.F32
    weight: Node | None = None
    """A factor on each weight after the softmax (head mask, eval dropout's scale), not part of the denominator."""
    softmax: str = "plain"
    """``plain``, ``sink`` (an extra logit in the denominator) or ``plus_one`` (that logit is 0)."""
    sink: Node | None = None
    dead_rows: str = "source"
    """``source``: as the fill class says; ``zero``: the source guards dead rows to 0."""
    sizes: tuple[str, ...] = ()
    """Named sizes that formulas use, in the order of the op's size arguments."""
    returns_lse: bool = False
