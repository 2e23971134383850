"""Flash attention over one tile of queries: online softmax over tiles of keys, float32 statistics and accumulators.

Names in capitals that nothing here defines come from the emitter. Constants of the plan stand above this text.
PARAMETERS, FRAME, OUTER and ROW are lists of names that differ from plan to plan, and are written out in place:

    PARAMETERS  side operands, strides, lengths and named sizes: what a call gives the kernel
    FRAME       those of them that formulas read
    OUTER       the outer index of this program, such as batch and head
    ROW         what formulas need of a row of queries and of no key, computed once
    Q_AT, …     where an operand begins for this outer index
    K_INDEX, …  this outer index in the tensor descriptor of keys or values

Keys and values come as pointers or, both of them, as tensor descriptors (outer axes × rows × features), whose tiles
hardware copies and fills with zeros outside of the tensor. What is computed is the same.
"""

import triton
import triton.language as tl

WHOLE = tl.constexpr(0)  # tiles of keys that all exist and are all visible
INSIDE = tl.constexpr(1)  # that all exist, under the mask
EDGE = tl.constexpr(2)  # of which some may not exist, all others visible
MASKED = tl.constexpr(3)  # of which some may not exist, under the mask
WRITTEN = tl.constexpr(4)  # as EDGE, with the score as the source wrote it


@triton.jit
def load_part(pointer, rows, columns, row_count, column_count, BOUNDED: tl.constexpr, EVEN: tl.constexpr):
    """Rows of an operand; zero outside of it. ``EVEN``: every column exists; without ``BOUNDED`` every row does."""
    if BOUNDED and not EVEN:
        return tl.load(pointer, mask=(rows < row_count)[:, None] & (columns < column_count)[None, :], other=0.0)
    elif BOUNDED:
        return tl.load(pointer, mask=(rows < row_count)[:, None], other=0.0)
    elif not EVEN:
        return tl.load(pointer, mask=(columns < column_count)[None, :], other=0.0)
    else:
        return tl.load(pointer)


@triton.jit
def part_pointers(base, rows, columns, row_stride, column_stride):
    return base + (tl.cast(rows, tl.int64) * row_stride)[:, None] + (columns * column_stride)[None, :]


@triton.jit
def one_tile(
    tile, m, l, o, o_low, q, q_low, k_at, k_low_at, v_at, v_low_at, k_row, v_row, rows, ROW, OUTER, FRAME,
    UNIT: tl.constexpr, KIND: tl.constexpr,
    D: tl.constexpr, D_HIGH: tl.constexpr, D_LOW: tl.constexpr,
    E: tl.constexpr, E_HIGH: tl.constexpr, E_LOW: tl.constexpr,
):  # fmt: skip
    """One tile of queries against one tile of keys."""
    first = tile * BLOCK_N
    key = first + tl.arange(0, BLOCK_N)
    d, e = tl.arange(0, D_HIGH), tl.arange(0, E_HIGH)
    k_offset = tl.cast(first, tl.int64) * k_row
    v_offset = tl.cast(first, tl.int64) * v_row
    if isinstance(k_at, tl.tensor_descriptor):
        k = tl.reshape(k_at.load([K_INDEX, first, 0]), [BLOCK_N, D_HIGH])
    else:
        k = load_part(k_at + k_offset, key, d, k_len, D, KIND >= EDGE, D >= D_HIGH)
    score = product(q, tl.trans(k), tl.zeros([BLOCK_M, BLOCK_N], tl.float32))
    if D_LOW > 0:
        d_low = D_HIGH + tl.arange(0, D_LOW)
        k_low = load_part(k_low_at + k_offset, key, d_low, k_len, D, KIND >= EDGE, D == D_HIGH + D_LOW)
        score = product(q_low, tl.trans(k_low), score)
    if KIND < EDGE:
        keys = key[None, :]
    else:  # keys that don't exist repeat the last one, so that an index made from them stays in range
        keys = tl.minimum(key, k_len - 1)[None, :]
    if KIND == WRITTEN:
        score = written(score, rows, keys, OUTER, FRAME)
    else:
        score = visible(score, rows, keys, ROW, OUTER, FRAME)
    if KIND == MASKED:
        score = tl.where(seen(rows, keys, ROW, OUTER, FRAME) & (key < k_len)[None, :], score, float("-inf"))
    elif KIND == INSIDE:
        score = tl.where(seen(rows, keys, ROW, OUTER, FRAME), score, float("-inf"))
    elif KIND >= EDGE:
        score = tl.where((key < k_len)[None, :], score, float("-inf"))

    top = tl.maximum(m, tl.max(score, 1))
    if BOUNDED_SCORE and KIND != WRITTEN:
        shift = top * UNIT if KIND == WHOLE and PLAIN_SCORE else tl.where(top == float("-inf"), 0.0, top * UNIT)
        p = tl.exp2(score * UNIT - shift[:, None])
        scale = tl.exp2(m * UNIT - shift)
    else:  # every key of a row may hold the lowest float32, whose product with UNIT overflows
        shift = tl.where(top == float("-inf"), 0.0, top)
        p = tl.exp2((score - shift[:, None]) * UNIT)
        scale = tl.exp2((m - shift) * UNIT)
    l = l * scale + tl.sum(p, 1)
    if HAS_WEIGHT:
        p = p * weight(rows, keys, ROW, OUTER, FRAME)
    if isinstance(v_at, tl.tensor_descriptor):
        v = tl.reshape(v_at.load([V_INDEX, first, 0]), [BLOCK_N, E_HIGH])
    else:
        v = load_part(v_at + v_offset, key, e, k_len, E, KIND >= EDGE, E >= E_HIGH)
    o = product(p.to(v.dtype), v, o * scale[:, None])
    if E_LOW > 0:
        e_low = E_HIGH + tl.arange(0, E_LOW)
        v_low = load_part(v_low_at + v_offset, key, e_low, k_len, E, KIND >= EDGE, E == E_HIGH + E_LOW)
        o_low = product(p.to(v.dtype), v_low, o_low * scale[:, None])
    return top, l, o, o_low


@triton.jit
def run_tiles(
    begin, end, step, tq, m, l, o, o_low, q, q_low, k_at, k_low_at, v_at, v_low_at, k_row, v_row, rows,
    ROW, OUTER, FRAME,
    UNIT: tl.constexpr, KIND: tl.constexpr, GUARD: tl.constexpr, STAGES: tl.constexpr,
    D: tl.constexpr, D_HIGH: tl.constexpr, D_LOW: tl.constexpr,
    E: tl.constexpr, E_HIGH: tl.constexpr, E_LOW: tl.constexpr,
):  # fmt: skip
    """Tiles ``begin``, ``begin + step``, … before ``end``; with a GUARD those for which that condition holds."""
    for tile in tl.range(begin, end, step, num_stages=STAGES):
        if GUARD >= 0:
            if guard(GUARD, tile, tq, OUTER, FRAME):
                m, l, o, o_low = one_tile(
                    tile, m, l, o, o_low, q, q_low, k_at, k_low_at, v_at, v_low_at, k_row, v_row, rows,
                    ROW, OUTER, FRAME, UNIT, KIND, D, D_HIGH, D_LOW, E, E_HIGH, E_LOW,
                )  # fmt: skip
        else:
            m, l, o, o_low = one_tile(
                tile, m, l, o, o_low, q, q_low, k_at, k_low_at, v_at, v_low_at, k_row, v_row, rows, ROW, OUTER, FRAME,
                UNIT, KIND, D, D_HIGH, D_LOW, E, E_HIGH, E_LOW,
            )  # fmt: skip
    return m, l, o, o_low


@triton.jit
def finish(
    m, l, o, o_low, dead, kept, row, rows, Out, Lse, out_row, out_col, lse_row, ROW, OUTER, FRAME,
    UNIT: tl.constexpr, E: tl.constexpr, E_HIGH: tl.constexpr, E_LOW: tl.constexpr,
):  # fmt: skip
    """Write the ``kept`` rows: o / l, and the log of the denominator."""
    natural = m * (UNIT * 0.6931471805599453)
    if HAS_SINK:
        extra = sink(rows, OUTER, FRAME)
        top = tl.maximum(natural, extra)
        scale = tl.where(dead, 0.0, tl.exp(natural - top))
        l = tl.where(dead, 1.0, scale * l + tl.exp(extra - top))
        factor = scale / l
        natural = top
    elif DEAD_ROWS == 0:
        factor = tl.where(dead & (k_len == 0), 0.0, 1.0 / l)
    else:
        factor = tl.where(dead, 0.0, 1.0 / l)
    e = tl.arange(0, E_HIGH)
    place = part_pointers(Out, row, e, out_row, out_col)
    tl.store(place, (o * factor[:, None]).to(Out.dtype.element_ty), mask=kept[:, None] & (e < E)[None, :])
    if E_LOW > 0:
        e_low = E_HIGH + tl.arange(0, E_LOW)
        place = part_pointers(Out, row, e_low, out_row, out_col)
        tl.store(place, (o_low * factor[:, None]).to(Out.dtype.element_ty), mask=kept[:, None] & (e_low < E)[None, :])
    if RETURNS_LSE:
        tl.store(Lse + tl.cast(row, tl.int64) * lse_row, natural + tl.log(l), mask=kept)


@triton.jit
def prefill(
    Q, K, V, Out, Lse, PARAMETERS,
    D: tl.constexpr, D_HIGH: tl.constexpr, D_LOW: tl.constexpr,
    E: tl.constexpr, E_HIGH: tl.constexpr, E_LOW: tl.constexpr,
):  # fmt: skip
    """One program for each tile of queries of each outer index; the longest causal tiles come first.

    For one row, over the tiles of keys (m running maximum, l denominator, o accumulator):

        m' = max(m, max_j s_j);  a = exp(m − m');  l = a l + Σ_j exp(s_j − m');  o = a o + Σ_j w_j exp(s_j − m') v_j

    and at the end out = o / l, lse = m + log l. UNIT · s is a score in log2 units; m is kept in the units of s, so that
    a plain score costs one fused multiply-add. A masked score is −inf, whose exponential is exactly 0. While a row has
    seen no visible key, m is −inf and 0 stands in for it, so that no −inf − −inf arises.

    A head dimension that is no power of two goes in two parts, HIGH and LOW: 80 = 64 + 16. LOW is 0 where there is one.
    """
    tiles = (q_len + BLOCK_M - 1) // BLOCK_M
    flat = tl.program_id(0) // tiles
    tq = tiles - 1 - tl.program_id(0) % tiles
    OUTER = outer_index(flat, FRAME)
    q_start, out_start, lse_start = Q_AT, OUT_AT, LSE_AT
    row = tq * BLOCK_M + tl.arange(0, BLOCK_M)
    kept = row < q_len
    rows = tl.minimum(row, q_len - 1)[:, None]
    key, d, e = tl.arange(0, BLOCK_N), tl.arange(0, D_HIGH), tl.arange(0, E_HIGH)

    q = load_part(part_pointers(q_start, row, d, q_row, q_col), row, d, q_len, D, True, D >= D_HIGH)
    q_low = q
    if D_LOW > 0:
        d_low = D_HIGH + tl.arange(0, D_LOW)
        place = part_pointers(q_start, row, d_low, q_row, q_col)
        q_low = load_part(place, row, d_low, q_len, D, True, D == D_HIGH + D_LOW)
    if isinstance(K, tl.tensor_descriptor):  # a head dimension in two parts comes by pointers
        k_at, v_at, k_low_at, v_low_at = K, V, K, V
    else:
        k_start, v_start = K_AT, V_AT
        k_at = part_pointers(k_start, key, d, k_row, k_col)
        v_at = part_pointers(v_start, key, e, v_row, v_col)
        k_low_at, v_low_at = k_at, v_at
        if D_LOW > 0:
            k_low_at = part_pointers(k_start, key, D_HIGH + tl.arange(0, D_LOW), k_row, k_col)
        if E_LOW > 0:
            v_low_at = part_pointers(v_start, key, E_HIGH + tl.arange(0, E_LOW), v_row, v_col)

    ROW = row_values(rows, OUTER, FRAME)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    o = tl.zeros([BLOCK_M, E_HIGH], tl.float32)
    o_low = l
    if E_LOW > 0:
        o_low = tl.zeros([BLOCK_M, E_LOW], tl.float32)
    SEGMENTS  # noqa: B018 - the emitter writes the loops here
    dead = (m == float("-inf")) & (l == 0.0)
    finish(
        m, l, o, o_low, dead, kept, row, rows, out_start, lse_start, out_row, out_col, lse_row, ROW, OUTER, FRAME,
        SCORE_UNIT, E, E_HIGH, E_LOW,
    )  # fmt: skip

    if DEAD_ROWS == 2:  # rows that see no key: the score as it was written, over every key
        if tl.max(dead.to(tl.int32), 0) > 0:
            m = tl.full([BLOCK_M], float("-inf"), tl.float32)
            l = tl.zeros([BLOCK_M], tl.float32)
            o = tl.zeros([BLOCK_M, E_HIGH], tl.float32)
            o_low = l
            if E_LOW > 0:
                o_low = tl.zeros([BLOCK_M, E_LOW], tl.float32)
            m, l, o, o_low = run_tiles(
                0, (k_len + BLOCK_N - 1) // BLOCK_N, 1, tq, m, l, o, o_low, q, q_low, k_at, k_low_at, v_at, v_low_at,
                k_row, v_row, rows, ROW, OUTER, FRAME,
                LOG2_E, WRITTEN, -1, 1, D, D_HIGH, D_LOW, E, E_HIGH, E_LOW,
            )  # fmt: skip
            still = (m == float("-inf")) & (l == 0.0)
            finish(
                m, l, o, o_low, still, kept & dead, row, rows, out_start, lse_start, out_row, out_col, lse_row,
                ROW, OUTER, FRAME, LOG2_E, E, E_HIGH, E_LOW,
            )  # fmt: skip
