"""Paged attention as a plan describes it, by plain torch operators: each request gathered whole and computed alone.

Serves the route where no kernel can be built, and (in float64) what kernels are tested against. Its numbers are right
to rounding; only kernels promise the same bits in every batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attnc.codegen.paged_plan import PagedPlan, scale_groups
from attnc.runtime.abi import DTYPES
from attnc.runtime.kv.quantise import ELEMENTS, decode
from attnc.runtime.program import SizeArg
from attnc.runtime.reference import Problem


def paged_attention(
    plan: PagedPlan,
    q: Tensor,
    pages: tuple[Tensor, Tensor],
    scales: tuple[Tensor | None, Tensor | None],
    block_table: Tensor,
    query_start: Tensor,
    context_len: Tensor,
    sides: Sequence[Tensor | None],
    sizes: Sequence[SizeArg],
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The result of ``attnc::paged_attention``: dimensions ``out_axes``, contiguous, of the plan's dtype.

    ``pages``, ``scales``: of K and of V. Computed in float32; ``dtype=torch.float64`` computes in, and returns, that.
    """
    attention = plan.attention
    out = q.new_empty(result_shape(plan, q, pages[1]), dtype=dtype or DTYPES[attention.dtypes[3]])
    rows, results = attention.q_axes.index("q"), attention.out_axes.index("q")
    starts, contexts = query_start.tolist(), context_len.tolist()
    for n, (begin, end, context) in enumerate(zip(starts[:-1], starts[1:], contexts, strict=True)):
        first = context if plan.causal else 0
        length = context + (end - begin if plan.causal else 0)
        if begin == end:
            continue
        k, v = (gather(plan, operand, pages[i], scales[i], block_table[n], length, q) for i, operand in enumerate("kv"))
        problem = _problem(plan, q.narrow(rows, begin, end - begin), first, k, v, sides, sizes, dtype or torch.float32)
        piece, _ = problem.rows(first, first + end - begin)
        out.narrow(results, begin, end - begin).copy_(piece)
    return out


def check(
    plan: PagedPlan,
    q: Tensor,
    pages: tuple[Tensor, Tensor],
    scales: tuple[Tensor | None, Tensor | None],
    sides: Sequence[Tensor],
    sizes: Sequence[SizeArg],
) -> None:
    """Raises ValueError for operands that the plan wasn't made for."""
    attention = plan.attention
    if q.dim() != len(attention.q_axes) or q.dtype is not DTYPES[attention.dtypes[0]]:
        raise ValueError(f"attnc::paged_attention: q is {q.dtype}{list(q.shape)}, the plan has {attention.q_axes}")
    for name, store, tensor, scale in zip("kv", (plan.k_store, plan.v_store), pages, scales, strict=True):
        if tensor.dtype is not ELEMENTS[store] or tensor.dim() != 4 or tensor.shape[2] != plan.page_size:
            raise ValueError(
                f"attnc::paged_attention: {name}_pages are {tensor.dtype}{list(tensor.shape)}, the plan has {store} "
                f"in pages of {plan.page_size}"
            )
        if (scale is None) != (scale_groups(store, 1) is None):
            raise ValueError(f"attnc::paged_attention: {store} pages with{'out' if scale is None else ''} scales")
    if len(sides) != len(attention.sides) or len(sizes) != len(attention.sizes):
        raise ValueError(
            f"attnc::paged_attention: expects {len(attention.sides)} side tensors and {len(attention.sizes)} sizes, "
            f"got {len(sides)} and {len(sizes)}"
        )


def result_shape(plan: PagedPlan, q: Tensor, v_pages: Tensor) -> list[int]:
    """Lengths of ``out_axes``. Symbolic lengths stay symbolic."""
    attention = plan.attention
    lengths = dict(zip(attention.q_axes, q.shape, strict=True))
    lengths["e"] = v_pages.shape[-1] if attention.value_dim is None else attention.value_dim
    return [lengths[axis] for axis in attention.out_axes]


def gather(
    plan: PagedPlan, operand: str, pages: Tensor, scale: Tensor | None, table: Tensor, length: int, q: Tensor
) -> Tensor:
    """One request's K (``k``) or V (``v``) as float32, dimensions as the plan names them; the null page holds zeros."""
    attention = plan.attention
    is_key = operand == "k"
    axes, features = (attention.k_axes, attention.head_dim) if is_key else (attention.v_axes, attention.value_dim)
    positions = torch.arange(length, device=pages.device)
    page = table.long()[positions // plan.page_size]
    place = (page, slice(None), positions % plan.page_size)
    features = pages.shape[-1] if features is None else features
    rows = decode(_cells(pages)[place].view(pages.dtype), None if scale is None else scale[place], features)
    rows = torch.where((page == 0)[:, None, None], 0.0, rows)  # [length, heads, features]
    of_q = dict(zip(attention.q_axes, q.shape, strict=True))
    heads = plan.kv_axes(operand)
    split = rows.reshape(length, *(of_q[a] for a in heads), features)
    named = ["k", *heads, "d" if operand == "k" else "e"]
    if plan.batch is not None:
        split, named = split[None], [plan.batch, *named]
    return split.permute([named.index(axis) for axis in axes])


def _cells(pages: Tensor) -> Tensor:
    """Pages as a dtype that torch indexes."""
    return pages.view(torch.uint8) if pages.dtype is torch.float8_e4m3fn else pages


def _problem(
    plan: PagedPlan,
    q: Tensor,
    first: int,
    k: Tensor,
    v: Tensor,
    sides: Sequence[Tensor | None],
    sizes: Sequence[SizeArg],
    compute: torch.dtype,
) -> Problem:
    """The request as dense attention whose first ``first`` queries are zeros, so that positions are absolute."""
    attention = plan.attention
    rows = attention.q_axes.index("q")
    before = q.new_zeros([first if i == rows else n for i, n in enumerate(q.shape)])
    q = torch.cat((before, q), rows)
    lengths: dict[str, int] = {}
    for operand, axes in ((q, attention.q_axes), (k, attention.k_axes), (v, attention.v_axes)):
        lengths |= zip(axes, operand.shape, strict=True)
    named = dict(zip(attention.sizes, sizes, strict=True)) | {f"|{a}|": n for a, n in lengths.items()}
    given = tuple(side for side in sides if side is not None)
    return Problem(attention, q, k, v, given, lengths, named, compute)
