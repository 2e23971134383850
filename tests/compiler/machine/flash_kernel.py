"""A small flash attention by pointers, for its machine code: a loop over keys all rows see, then one with a mask."""

# ruff: noqa: N803 -- constants and operands are named as kernels name them

import triton
import triton.language as tl


@triton.jit
def attend(acc, top, total, query, keys, values, key_stride, scale, rows, start, end, K_LENGTH,
           MASKED: tl.constexpr, STAGES: tl.constexpr, BLOCK_N: tl.constexpr):  # fmt: skip
    columns = tl.arange(0, BLOCK_N)
    for n in tl.range(start, end, BLOCK_N, num_stages=STAGES):
        at = n + columns
        offset = tl.multiple_of(n, BLOCK_N) * key_stride.to(tl.int64)
        if MASKED:
            inside = (at < K_LENGTH)[:, None]
            key = tl.load(keys + offset, mask=inside, other=0.0)
            value = tl.load(values + offset, mask=inside, other=0.0)
        else:
            key = tl.load(keys + offset)
            value = tl.load(values + offset)
        score = tl.dot(query, key.T)
        if MASKED:
            score = tl.where((at[None, :] <= rows[:, None]) & (at < K_LENGTH)[None, :], score, float("-inf"))
        new = tl.maximum(top, tl.max(score, 1))
        weight = tl.math.exp2(score * scale - (new * scale)[:, None])
        shrink = tl.math.exp2((top - new) * scale)
        total = total * shrink + tl.sum(weight, 1)
        acc = tl.dot(weight.to(value.dtype), value, acc * shrink[:, None])
        top = new
    return acc, top, total


@triton.jit
def flash(Q, K, V, OUT, scale, q_head, q_row, k_head, k_row, feature, Q_LENGTH, K_LENGTH,
          CAUSAL: tl.constexpr, MASKED_STAGES: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr,
          BLOCK_N: tl.constexpr):  # fmt: skip
    block = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    features = tl.arange(0, HEAD_DIM)[None, :] * feature
    seen = (rows < Q_LENGTH)[:, None]
    tile = head * q_head + rows[:, None] * q_row + features
    query = tl.load(Q + tile, mask=seen, other=0.0)
    others = head * k_head + tl.arange(0, BLOCK_N)[:, None] * k_row + features
    acc = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    top = tl.full([BLOCK_M], -3.0e38, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    full = K_LENGTH // BLOCK_N * BLOCK_N
    if CAUSAL:
        full = tl.minimum(full, block * BLOCK_M // BLOCK_N * BLOCK_N)
    acc, top, total = attend(acc, top, total, query, K + others, V + others, k_row, scale, rows, 0, full, K_LENGTH,
                             False, None, BLOCK_N)  # fmt: skip
    if CAUSAL:
        end = tl.minimum(K_LENGTH, (block + 1) * BLOCK_M)
        acc, top, total = attend(acc, top, total, query, K + others, V + others, k_row, scale, rows, full, end,
                                 K_LENGTH, True, MASKED_STAGES, BLOCK_N)  # fmt: skip
    tl.store(OUT + tile, (acc / total[:, None]).to(OUT.dtype.element_ty), mask=seen)
