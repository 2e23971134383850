"""From ``attn.attention`` over whole sequences to a :class:`~attnc.codegen.paged_plan.PagedPlan` over pages.

The formulas stay as they are: over absolute positions they mean the same, whichever tokens a step brings. What can't
mean the same is refused: formulas that differ by request, rows whose value depends on keys that come later.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from attnc.codegen.paged_plan import PagedPlan
from attnc.codegen.targets import capability
from attnc.codegen.triton.kv_write import check_stores
from attnc.codegen.triton.paged_tuning import block_keys
from attnc.compiler.planning.plan import axis_lengths, demand, op_formulas, plan_attention
from attnc.compiler.planning.target import DEFAULT, blocks
from attnc.ir import index as ix
from attnc.ir import score as sc
from attnc.ir.attention import AttentionSpec
from attnc.ir.mask import MaskSet
from attnc.ir.types import TensorType
from attnc.ir.values import Op

PAGE_SIZE = 64
"""Keys of a page where nothing else is asked."""
SPLIT = 512
"""Least keys of a split: enough work for one thread, few enough that one long request keeps several busy."""


def plan_paged(
    op: Op,
    *,
    batch: str | None,
    page_size: int = PAGE_SIZE,
    k_store: str | None = None,
    v_store: str | None = None,
    causal: bool = True,
    target: str = DEFAULT,
) -> PagedPlan:
    """The plan of an ``attn.attention`` op whose keys and values are cached in pages.

    ``batch``: the axis that stood for requests. ``k_store``, ``v_store``: how pages hold numbers, by default as K and V
    do. ``causal`` False: cross attention, whose keys are all cached before. Blocks of keys are made to fit
    ``page_size``. Raises ValueError, with the reason, where a paged kernel can't give what the op means:

    - a formula reads the batch axis (padding, documents, a side operand with a batch dimension);
    - a query may see a later key, or in cross attention a formula reads the query position;
    - a row may see no key and then depends on every key there is (a finite fill). A causal row that always sees itself
      has no such case; with a fill of −inf, or a guard, it is 0;
    - the log-sum-exp is returned, an outer axis is not in q, a quantised head dimension isn't known;
    - the target's GPU doesn't convert numbers of a store.
    """
    spec: AttentionSpec = op.attrs["spec"]
    block_n = _block_n(op, page_size, target)
    for reason in _refusals(spec, op_formulas(op, target, (1, block_n)).mask_set, batch, causal):
        raise ValueError(f"no paged attention for {op.loc}: {reason}")
    plan = plan_attention(op, target, (1, block_n))
    if plan.dead_rows == "as_written":
        raise ValueError(
            f"no paged attention for {op.loc}: a row may see no key, and is then an average over all, later ones too"
        )
    stores = (k_store or plan.dtypes[1], v_store or plan.dtypes[2])
    if "i4" in stores and None in (plan.head_dim, plan.value_dim):
        raise ValueError(f"no paged attention for {op.loc}: pages of i4 need head dimensions known beforehand")
    if capability(target).language == "triton":
        check_stores(capability(target), stores)
    unit = math.lcm(page_size, block_n)
    return PagedPlan(plan, batch, page_size, *stores, split=-(-SPLIT // unit) * unit, causal=causal)


def _block_n(op: Op, page_size: int, target: str) -> int:
    """Keys of a block: what suits the target, made to divide pages or be divided by them."""
    if page_size < 1:
        raise ValueError(f"pages of {page_size} keys")
    key = op.operands[1].type
    assert isinstance(key, TensorType)
    asked = demand(op.attrs["spec"], axis_lengths(op), key.dtype.value)
    if capability(target).language == "triton":  # blocks of which are powers of two
        wanted = block_keys(capability(target), asked)
        return wanted if wanted % page_size == 0 else math.gcd(page_size, wanted)
    wanted = blocks(capability(target), asked)[1]
    if wanted % page_size == 0:
        return wanted
    return page_size * (wanted // page_size) if page_size <= wanted else math.gcd(page_size, wanted)


def _refusals(spec: AttentionSpec, mask: MaskSet, batch: str | None, causal: bool) -> Iterator[str]:
    scores = (f for f in (spec.score, spec.visible, spec.weight, spec.sink) if f is not None)
    used = ix.axes_of(spec.mask).union(*map(sc.axes_of, scores))
    if batch is not None:
        if batch in used:
            yield f"a formula reads the batch axis {batch}, so it differs by request"
        lacking = [n for n, axes in (("q", spec.q_axes), ("k", spec.k_axes), ("v", spec.v_axes)) if batch not in axes]
        if lacking:
            yield f"{' and '.join(lacking)} has no batch axis {batch}"
    if not causal and "q" in used:
        yield "a formula reads the query position, which cross attention over pages doesn't know"
    if causal and not mask.is_causal():
        yield "a query may see a key that comes after it"
    if spec.returns_lse:
        yield "it returns the log-sum-exp"
    strange = [a for a in spec.out_axes if a not in (*spec.q_axes, "e")]
    if strange:
        yield f"axis {strange[0]} is not one of q"
