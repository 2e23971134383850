"""A small attention as generated code has it: a kernel and what launches it. Tests send its text to an interpreter."""
# ruff: noqa: N803 (constants of a kernel are capitals)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale, s_q, s_k,
    CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    m, d = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, D)
    rows = m[:, None] * D + d[None, :]
    q = tl.load(q_ptr + rows, mask=m[:, None] < s_q, other=0.0)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in tl.range(0, s_k, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        columns, inside = n[:, None] * D + d[None, :], n[:, None] < s_k
        k = tl.load(k_ptr + columns, mask=inside, other=0.0)
        v = tl.load(v_ptr + columns, mask=inside, other=0.0)
        visible = n[None, :] < s_k
        if CAUSAL:
            visible = visible & (n[None, :] <= m[:, None])
        scores = tl.where(visible, tl.dot(q, tl.trans(k)) * scale, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights, shrink = tl.exp(scores - new_top[:, None]), tl.exp(top - new_top)
        total = total * shrink + tl.sum(weights, 1)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])
        top = new_top
    result = acc / total[:, None]
    tl.store(o_ptr + rows, result.to(o_ptr.dtype.element_ty), mask=m[:, None] < s_q)
    tl.store(lse_ptr + m, top + tl.log(total), mask=m < s_q)


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """q [q, D], k and v [k, D]: the result [q, D] and the log-sum-exp [q], float32."""
    out, lse = torch.empty_like(q), torch.empty(len(q))
    grid = (triton.cdiv(len(q), 64),)
    attention_kernel[grid](q, k, v, out, lse, q.shape[1] ** -0.5, len(q), len(k), causal, 64, 64, q.shape[1])
    return out, lse
