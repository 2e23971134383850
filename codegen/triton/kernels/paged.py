"""Attention over pages: requests with cached keys and new tokens, split at fixed positions of their keys.

Names in capitals that nothing here defines come from the emitter. Constants of the plan stand above this text.
PARAMETERS, FRAME, OUTER and ROW are lists of names as in ``prefill.py``; Q_AT and OUT_AT are where rows begin.

    request   tokens Starts[n] … Starts[n + 1] of Q; its keys lie in the pages that row n of Table names
    row       one token of one query head; rows of a tile share a kv head, heads of one token side by side
    tile      BLOCK_M rows of one request and kv head
    split     keys [i · SPLIT, (i + 1) · SPLIT) of a request, SPLIT_BLOCKS blocks of BLOCK_N
    part      m, l and o of a tile over one split, in memory: only of requests whose rows are one tile
    numbers   K or V of a block in two parts. Pages of I4 have two features in a byte, the parts are the first and the
              second of them; any other head dimension that is no power of two is HIGH + LOW features

A row's operations stand in one order, whatever runs beside it: blocks in order within a split, splits merged in order,
with what a row does not see as exact zeros. Where parts are merged here and where ``merge`` does it, it is the same
fused operations.
"""

import triton
import triton.language as tl

WHOLE = tl.constexpr(0)  # blocks of keys that all exist and that every row of the tile sees
MASKED = tl.constexpr(1)
PLAIN = tl.constexpr(0)  # pages of floats
SCALED = tl.constexpr(1)  # of numbers with one scale for each key
I4 = tl.constexpr(2)  # of two numbers a byte, with a scale for each 32 features


@triton.jit
def cells(base, rows, columns, there, COUNT: tl.constexpr, EVEN: tl.constexpr, KIND: tl.constexpr):
    """``columns`` of rows that begin at ``rows``; zero where a column isn't below COUNT or a row isn't ``there``."""
    at = base + rows[:, None] + columns[None, :]
    if KIND == WHOLE and EVEN:
        return tl.load(at)
    elif KIND == WHOLE:
        return tl.load(at, mask=(columns < COUNT)[None, :], other=0.0)
    elif EVEN:
        return tl.load(at, mask=there[:, None], other=0.0)
    else:
        return tl.load(at, mask=there[:, None] & (columns < COUNT)[None, :], other=0.0)


@triton.jit
def signed(nibble, scale, TYPE: tl.constexpr):
    """−8 … 7 times its scale."""
    return (((nibble.to(tl.int32) ^ 8) - 8).to(tl.float32) * scale).to(TYPE)


@triton.jit
def numbers(
    Pages, Scales, rows, scale_rows, there, STORE: tl.constexpr, WIDTH: tl.constexpr, HIGH: tl.constexpr,
    LOW: tl.constexpr, TYPE: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """Both parts of a block; quantised ones as TYPE, without the scale of a key."""
    column = tl.arange(0, HIGH)
    first = cells(Pages, rows, column, there, WIDTH, WIDTH >= HIGH, KIND)
    second = first
    if STORE == I4:
        scale = cells(Scales, scale_rows, column // 16, there, (WIDTH + 15) // 16, WIDTH >= HIGH, KIND).to(tl.float32)
        second = signed(first >> 4, scale, TYPE)
        first = signed(first & 15, scale, TYPE)
    elif LOW > 0:
        second = cells(Pages, rows, tl.arange(0, LOW) + HIGH, there, WIDTH, WIDTH == HIGH + LOW, KIND)
    if STORE == SCALED:
        first = first.to(TYPE)
        second = second.to(TYPE)
    return first, second


@triton.jit
def features(part: tl.constexpr, STORE: tl.constexpr, HIGH: tl.constexpr, LOW: tl.constexpr):
    """Which features the columns of a part are."""
    if STORE == I4:
        return 2 * tl.arange(0, HIGH) + part
    elif part == 0:
        return tl.arange(0, HIGH)
    else:
        return tl.arange(0, LOW) + HIGH


@triton.jit
def one_block(
    block, m, l, o, o_low, q, q_low, K, V, KS, VS, table, k_page, k_slot, v_page, v_slot,
    ks_page, ks_slot, vs_page, vs_slot, rows, ROW, OUTER, FRAME, KIND: tl.constexpr,
):  # fmt: skip
    """One tile of rows against one block of keys."""
    first = block * BLOCK_N
    key = first + tl.arange(0, BLOCK_N)
    if BLOCK_N <= PAGE_SIZE:
        page = tl.load(table + first // PAGE_SIZE).to(tl.int64)
        slot = first % PAGE_SIZE + tl.arange(0, BLOCK_N)
        there = (key < k_len) & (page > 0)
    else:
        if KIND == WHOLE:
            page = tl.load(table + key // PAGE_SIZE).to(tl.int64)
        else:
            page = tl.load(table + key // PAGE_SIZE, mask=key < k_len, other=0).to(tl.int64)
        slot = key % PAGE_SIZE
        there = (key < k_len) & (page > 0)
    k, k_low = numbers(
        K, KS, page * k_page + slot * k_slot, page * ks_page + slot * ks_slot, there,
        K_STORE, K_WIDTH, D_HIGH, D_LOW, q.dtype, KIND,
    )  # fmt: skip
    score = product(q, tl.trans(k), tl.zeros([q.shape[0], BLOCK_N], tl.float32))
    if D_LOW > 0:
        score = product(q_low, tl.trans(k_low), score)
    if K_STORE == SCALED:
        at = KS + page * ks_page + slot * ks_slot
        score = score * (tl.load(at) if KIND == WHOLE else tl.load(at, mask=there, other=0.0))[None, :]
    if KIND == WHOLE:
        keys = key[None, :]
    else:  # keys that don't exist repeat the last one, so that an index made from them stays in range
        keys = tl.minimum(key, k_len - 1)[None, :]
    score = visible(score, rows, keys, ROW, OUTER, FRAME)
    if KIND == MASKED and HAS_MASK:
        score = tl.where(seen(rows, keys, ROW, OUTER, FRAME) & (key < k_len)[None, :], score, float("-inf"))
    elif KIND == MASKED:
        score = tl.where((key < k_len)[None, :], score, float("-inf"))

    top = tl.maximum(m, tl.max(score, 1))
    if BOUNDED_SCORE:
        shift = tl.where(top == float("-inf"), 0.0, top * SCORE_UNIT)
        p = tl.exp2(score * SCORE_UNIT - shift[:, None])
        scale = tl.exp2(m * SCORE_UNIT - shift)
    else:  # every key of a row may hold the lowest float32, whose product with SCORE_UNIT overflows
        shift = tl.where(top == float("-inf"), 0.0, top)
        p = tl.exp2((score - shift[:, None]) * SCORE_UNIT)
        scale = tl.exp2((m - shift) * SCORE_UNIT)
    l = l * scale + tl.sum(p, 1)
    if HAS_WEIGHT:
        p = p * weight(rows, keys, ROW, OUTER, FRAME)
    v, v_low = numbers(
        V, VS, page * v_page + slot * v_slot, page * vs_page + slot * vs_slot, there,
        V_STORE, V_WIDTH, E_HIGH, E_LOW, q.dtype, KIND,
    )  # fmt: skip
    if V_STORE == SCALED:
        at = VS + page * vs_page + slot * vs_slot
        factor = tl.load(at) if KIND == WHOLE else tl.load(at, mask=there, other=0.0)
        if q.dtype == tl.float16:  # a weight times a small scale would be lost in float16
            v = (v.to(tl.float32) * factor[:, None]).to(tl.float16)
            v_low = (v_low.to(tl.float32) * factor[:, None]).to(tl.float16)
        else:
            p = p * factor[None, :]
    if v.dtype == q.dtype:
        p = p.to(v.dtype)
    o = product(p, v, o * scale[:, None])
    if E_LOW > 0:
        o_low = product(p, v_low, o_low * scale[:, None])
    return top, l, o, o_low


@triton.jit
def run_blocks(
    begin, end, m, l, o, o_low, q, q_low, K, V, KS, VS, table, k_page, k_slot, v_page, v_slot,
    ks_page, ks_slot, vs_page, vs_slot, rows, ROW, OUTER, FRAME, KIND: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Blocks ``begin`` to ``end``; masked ones only where some row visits them, if a plan tests each of them."""
    for block in tl.range(begin, end, num_stages=STAGES):
        if KIND == MASKED and TESTED:
            if visits(block, rows, OUTER, FRAME):
                m, l, o, o_low = one_block(
                    block, m, l, o, o_low, q, q_low, K, V, KS, VS, table, k_page, k_slot, v_page, v_slot,
                    ks_page, ks_slot, vs_page, vs_slot, rows, ROW, OUTER, FRAME, KIND,
                )  # fmt: skip
        else:
            m, l, o, o_low = one_block(
                block, m, l, o, o_low, q, q_low, K, V, KS, VS, table, k_page, k_slot, v_page, v_slot,
                ks_page, ks_slot, vs_page, vs_slot, rows, ROW, OUTER, FRAME, KIND,
            )  # fmt: skip
    return m, l, o, o_low


@triton.jit
def merged(m, l, o, o_low, part_m, part_l, part_o, part_low):
    """Two runs of keys as one; a part that saw no key changes nothing."""
    top = tl.maximum(m, part_m)
    shift = tl.where(top == float("-inf"), 0.0, top)
    a, b = tl.exp2((m - shift) * SCORE_UNIT), tl.exp2((part_m - shift) * SCORE_UNIT)
    o = tl.fma(o, a[:, None], part_o * b[:, None])
    if E_LOW > 0:
        o_low = tl.fma(o_low, a[:, None], part_low * b[:, None])
    return top, tl.fma(l, a, part_l * b), o, o_low


@triton.jit
def empty(BLOCK_M: tl.constexpr):
    """m, l and both parts of o of rows that saw no key."""
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    o = tl.zeros([BLOCK_M, E_HIGH], tl.float32)
    o_low = l
    if E_LOW > 0:
        o_low = tl.zeros([BLOCK_M, E_LOW], tl.float32)
    return m, l, o, o_low


@triton.jit
def find_request(Starts, requests, tile, groups, BLOCK_M: tl.constexpr):
    """The request that a tile is of, and its place there: request n has the tiles from ``Starts[n]`` rows + n on."""
    low, high = tile * 0, tile * 0 + requests - 1
    while low < high:
        middle = (low + high + 1) // 2
        behind = (tl.load(Starts + middle) * groups // BLOCK_M + middle) <= tile
        low = tl.where(behind, middle, low)
        high = tl.where(behind, high, middle - 1)
    return low, tile - (tl.load(Starts + low) * groups // BLOCK_M + low)


@triton.jit
def lengths_of(Starts, Contexts, request):
    """A request's first token in Q, its keys before this step, its new tokens, and its keys."""
    first_token = tl.load(Starts + request)
    context = tl.load(Contexts + request)
    count = tl.load(Starts + request + 1) - first_token
    return first_token, context, count, context + (count if CAUSAL else 0)


@triton.jit
def rows_of(tile, count, groups, BLOCK_M: tl.constexpr):
    """Which rows of a tile there are [BLOCK_M], and their token of the request and head of the group [BLOCK_M, 1].

    Rows that aren't repeat the last one.
    """
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    kept = row < count * groups
    row = tl.minimum(row, count * groups - 1)
    return kept, (row // groups)[:, None], (row % groups)[:, None]


@triton.jit
def finish(m, l, o, o_low, kept, rows, out_at, out_col, OUTER, FRAME):
    """Write the ``kept`` rows: o / l."""
    dead = (m == float("-inf")) & (l == 0.0)
    if HAS_SINK:
        natural = m * (SCORE_UNIT * 0.6931471805599453)
        extra = sink(rows, OUTER, FRAME)
        top = tl.maximum(natural, extra)
        scale = tl.where(dead, 0.0, tl.exp(natural - top))
        factor = scale / tl.where(dead, 1.0, scale * l + tl.exp(extra - top))
    elif DEAD_ROWS == 0:
        factor = tl.where(dead & (k_len == 0), 0.0, 1.0 / l)
    else:
        factor = tl.where(dead, 0.0, 1.0 / l)
    e = features(0, V_STORE, E_HIGH, E_LOW)
    value = (o * factor[:, None]).to(out_at.dtype.element_ty)
    tl.store(out_at + (e * out_col)[None, :], value, mask=kept[:, None] & (e < E)[None, :])
    if E_LOW > 0:
        e = features(1, V_STORE, E_HIGH, E_LOW)
        value = (o_low * factor[:, None]).to(out_at.dtype.element_ty)
        tl.store(out_at + (e * out_col)[None, :], value, mask=kept[:, None] & (e < E)[None, :])


@triton.jit
def part_place(request, kv, split, kv_count, splits, BLOCK_M: tl.constexpr):
    """Rows of parts before those of one split."""
    return ((tl.cast(request, tl.int64) * kv_count + kv) * splits + split) * BLOCK_M + tl.arange(0, BLOCK_M)


@triton.jit(do_not_specialize=COUNTS)
def paged(
    Q, K, V, KS, VS, Table, Starts, Contexts, Out, Parts, Sums, PARAMETERS, BLOCK_M: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Programs of whole tiles, then those of single splits, for requests whose rows are one tile.

    A tile is computed as one or as the other: by splits where ``splits`` says that parts have room and its keys are
    more than one split's. Which tiles there are is read from Starts here, so that nothing waits for it on the host:
    request n has Starts[n] · groups / BLOCK_M + n tiles before it, of which some may be of no rows.
    """
    whole = tiles * kv_count
    program = tl.program_id(0)
    if program < whole:
        kv = program % kv_count
        request, tile = find_request(Starts, requests, tiles - 1 - program // kv_count, groups, BLOCK_M)
        split = program * 0 - 1
    else:
        split = (program - whole) % splits
        kv = (program - whole) // splits % kv_count
        request = (program - whole) // splits // kv_count
        tile = program * 0
    first_token, context, count, k_len = lengths_of(Starts, Contexts, request)
    q_len = k_len if CAUSAL else count
    apart = (splits > 0) & (count * groups <= BLOCK_M) & (k_len > SPLIT)
    idle = (tile * BLOCK_M >= count * groups) | ((split >= 0) != apart) | ((split * SPLIT >= k_len) & (split > 0))
    if idle:
        return

    kept, new, group = rows_of(tile, count, groups, BLOCK_M)
    token = tl.cast(first_token + new, tl.int64)
    rows = (context if CAUSAL else 0) + new
    OUTER = outer_index(kv, group, FRAME)
    table = Table + tl.cast(request, tl.int64) * table_row
    d = features(0, K_STORE, D_HIGH, D_LOW)
    q_at = Q_AT
    q = tl.load(q_at + (d * q_col)[None, :], mask=kept[:, None] & (d < D)[None, :], other=0.0)
    q_low = q
    if D_LOW > 0:
        d = features(1, K_STORE, D_HIGH, D_LOW)
        q_low = tl.load(q_at + (d * q_col)[None, :], mask=kept[:, None] & (d < D)[None, :], other=0.0)
    k_head, v_head = tl.cast(K_HEAD, tl.int64), tl.cast(V_HEAD, tl.int64)
    K, KS = K + k_head * k_of_head, KS + k_head * ks_of_head
    V, VS = V + v_head * v_of_head, VS + v_head * vs_of_head
    ROW = row_values(rows, OUTER, FRAME)

    begin, end, full_begin, full_end = visited(rows, OUTER, FRAME)
    first_split = tl.where(split >= 0, split, begin // SPLIT_BLOCKS)
    last_split = tl.where(split >= 0, split + 1, (end + SPLIT_BLOCKS - 1) // SPLIT_BLOCKS)
    all_m, all_l, all_o, all_low = empty(BLOCK_M)
    for n in tl.range(first_split, last_split, num_stages=1):
        lo, hi = tl.maximum(begin, n * SPLIT_BLOCKS), tl.minimum(end, (n + 1) * SPLIT_BLOCKS)
        full_lo = tl.minimum(tl.maximum(full_begin, lo), hi)
        full_hi = tl.minimum(tl.maximum(full_end, full_lo), hi)
        m, l, o, o_low = empty(BLOCK_M)
        RUNS  # noqa: B018 - the emitter writes the loops here
        all_m, all_l, all_o, all_low = merged(all_m, all_l, all_o, all_low, m, l, o, o_low)
    if split >= 0:
        place = part_place(request, kv, split, kv_count, splits, BLOCK_M)
        tl.store(Sums + 2 * place, all_m)
        tl.store(Sums + 2 * place + 1, all_l)
        at = Parts + (place * (E_HIGH + E_LOW))[:, None]
        tl.store(at + tl.arange(0, E_HIGH)[None, :], all_o)
        if E_LOW > 0:
            tl.store(at + (tl.arange(0, E_LOW) + E_HIGH)[None, :], all_low)
    else:
        out_at = OUT_AT
        finish(all_m, all_l, all_o, all_low, kept, rows, out_at, out_col, OUTER, FRAME)


@triton.jit(do_not_specialize=COUNTS)
def merge(
    Q, K, V, KS, VS, Table, Starts, Contexts, Out, Parts, Sums, PARAMETERS, BLOCK_M: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Merges the parts of one request and kv head, in the order of their keys."""
    request, kv = tl.program_id(0) // kv_count, tl.program_id(0) % kv_count
    first_token, context, count, k_len = lengths_of(Starts, Contexts, request)
    q_len = k_len if CAUSAL else count
    if (count == 0) | (count * groups > BLOCK_M) | (k_len <= SPLIT):
        return
    kept, new, group = rows_of(0, count, groups, BLOCK_M)
    token = tl.cast(first_token + new, tl.int64)
    rows = (context if CAUSAL else 0) + new
    OUTER = outer_index(kv, group, FRAME)
    m, l, o, o_low = empty(BLOCK_M)
    for split in tl.range(0, (k_len + SPLIT - 1) // SPLIT, num_stages=STAGES):
        place = part_place(request, kv, split, kv_count, splits, BLOCK_M)
        part_m, part_l = tl.load(Sums + 2 * place), tl.load(Sums + 2 * place + 1)
        at = Parts + (place * (E_HIGH + E_LOW))[:, None]
        part_o = tl.load(at + tl.arange(0, E_HIGH)[None, :])
        part_low = part_l
        if E_LOW > 0:
            part_low = tl.load(at + (tl.arange(0, E_LOW) + E_HIGH)[None, :])
        m, l, o, o_low = merged(m, l, o, o_low, part_m, part_l, part_o, part_low)
    out_at = OUT_AT
    finish(m, l, o, o_low, kept, rows, out_at, out_col, OUTER, FRAME)
