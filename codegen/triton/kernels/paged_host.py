"""Launching the kernels. Constants of the plan (AXES, KV_AXES, STORES, TILINGS, …) stand above this text."""

import math

import torch

PROGRAMS = 512
"""Programs that keep a GPU busy: with fewer tiles than that, requests are cut into splits."""
PART_BYTES = 1 << 28
"""Memory that parts may take; requests are not cut where it is too little."""


def check_pages(name, pages, scale, store, heads, features):
    """Raises ValueError for pages or scales that aren't the plan's."""
    dtype, kind = store
    shape = [pages.shape[0], heads, PAGE_SIZE.value, -(-features // 2) if kind == 2 else features]
    if pages.dtype is not dtype or list(pages.shape) != shape or (pages.numel() and pages.stride(3) != 1):
        raise ValueError(f"{name} pages are {pages.dtype}{list(pages.shape)}, expected {dtype}{shape}, unit stride")
    wanted = shape[:3] + ([-(-features // 32)] if kind == 2 else []) if kind else None
    found = None if scale is None else list(scale.shape)
    if found != wanted or (kind and scale.dtype is not (torch.float16 if kind == 2 else torch.float32)):
        raise ValueError(f"{name} scales are {found}, expected {wanted}")
    if kind == 2 and scale.stride(3) != 1:
        raise ValueError(f"{name} scales of one row have to be contiguous")


def check_batch(block_table, query_start, context_len):
    """Raises ValueError for what isn't dense i32 of one length. What is in them isn't read here."""
    if block_table.dim() != 2 or any(t.dtype is not torch.int32 for t in (block_table, query_start, context_len)):
        raise ValueError("block_table, query_start and context_len have to be i32, the table [requests, pages]")
    requests = block_table.shape[0]
    if query_start.shape != (requests + 1,) or context_len.shape != (requests,):
        raise ValueError(
            f"query_start {list(query_start.shape)}, context_len {list(context_len.shape)}: {requests} requests"
        )
    if any(t.numel() > 1 and t.stride(-1) != 1 for t in (block_table, query_start, context_len)):
        raise ValueError("block_table, query_start and context_len have to be contiguous")


def axis_lengths(q):
    """The length of every axis of q. Raises ValueError for other dimensions than the plan's."""
    if q.dim() != len(AXES["q"]) or q.dtype is not Q_DTYPE:
        raise ValueError(f"q is {q.dtype}{list(q.shape)}, expected {Q_DTYPE} with dimensions {', '.join(AXES['q'])}")
    length = dict(zip(AXES["q"], q.shape)) | {"e": E.value}
    if length.get(BATCH, 1) != 1 or length["d"] != D.value:
        raise ValueError(f"q is {list(q.shape)}: axis {BATCH} has to be one long, d {D.value}")
    if length["q"] * math.prod(length[a] for a in OUTER_AXES) >= 1 << 30:
        raise ValueError(f"{length['q']} tokens are too many for one step")
    return length


def strides(tensor, axes):
    """Strides along axes but for the batch."""
    return [stride for axis, stride in zip(axes, tensor.stride()) if axis != BATCH]


def tiling(rows, requests):
    """(block_m, num_warps, num_stages) for so many rows of one kv head."""
    return next((t for t in TILINGS if rows <= t[0] * requests), TILINGS[-1])


def cuts(requests, kv_count, splits, block_m):
    """Splits that have room for parts: none where there is other work enough, or too little memory."""
    size = requests * kv_count * splits * block_m * (E_HIGH.value + E_LOW.value + 2) * 4
    return splits if splits > 1 and requests * kv_count < PROGRAMS and size <= PART_BYTES else 0


def prepared(
    q, k_pages, v_pages, k_scale, v_scale, block_table, query_start, context_len, sides=(), sizes=(), forced=None
):  # fmt: skip
    """(out, programs, merges, arguments, options) of a step: the result to be written, and how kernels are launched.

    ``forced``: (tiling, splits that are cut) instead of what suits the step. Raises ValueError for operands that don't
    fit the plan.
    """
    length = axis_lengths(q)
    check_sides(sides, sizes, length)
    check_batch(block_table, query_start, context_len)
    for name, pages, scale, store, features in zip("kv", (k_pages, v_pages), (k_scale, v_scale), STORES, (D, E)):
        heads = math.prod(length[a] for a in HEAD_AXES[name])
        check_pages(name, pages, scale, store, heads, features.value)
    out = q.new_empty([length[a] for a in AXES["out"]], dtype=OUT_DTYPE)
    requests, tokens = block_table.shape[0], length["q"]
    kv_count = math.prod(length[a] for a in KV_AXES)
    groups = math.prod(length[a] for a in OUTER_AXES) // max(kv_count, 1)
    splits = -(-block_table.shape[1] * PAGE_SIZE.value // SPLIT.value)
    shape = tiling(tokens * groups, requests)
    splits = cuts(requests, kv_count, splits, shape[0])
    if forced is not None:
        shape, splits = forced
    tiles = tokens * groups // shape[0] + requests
    programs = (tiles + requests * splits) * kv_count if out.numel() and requests else 0
    places = requests * kv_count * splits * shape[0] if programs else 0
    parts = q.new_empty(places * (E_HIGH.value + E_LOW.value), dtype=torch.float32)
    sums = q.new_empty(places * 2, dtype=torch.float32)
    numbers = [*strides(q, AXES["q"]), *strides(out, AXES["out"]), *k_pages.stride()[:3], *v_pages.stride()[:3]]
    for scale in (k_scale, v_scale):
        numbers += (0, 0, 0) if scale is None else scale.stride()[:3]
    numbers += [block_table.stride(0), *(s for side in sides for s in side.stride())]
    numbers += [*(length[a] for a in OUTER_AXES), *sizes, groups, kv_count, requests, tiles, splits]
    scales = (k_pages if k_scale is None else k_scale, v_pages if v_scale is None else v_scale)
    operands = (q, k_pages, v_pages, *scales, block_table, query_start, context_len, out, parts, sums, *sides)
    options = {"BLOCK_M": shape[0], "STAGES": shape[2], "num_warps": shape[1], "num_stages": shape[2]}
    return out, programs, requests * kv_count if splits else 0, (*operands, *numbers), options


def attention(
    q, k_pages, v_pages, k_scale, v_scale, block_table, query_start, context_len, sides=(), sizes=(), forced=None
):  # fmt: skip
    """The result of a step, with the dimensions AXES["out"], contiguous; operands as of attnc::paged_attention.

    What ``block_table``, ``query_start`` and ``context_len`` hold is taken for granted. Raises ValueError for operands
    that don't fit the plan.
    """
    out, programs, merges, arguments, options = prepared(
        q, k_pages, v_pages, k_scale, v_scale, block_table, query_start, context_len, sides, sizes, forced
    )
    if programs:
        with torch.cuda.device_of(q):
            paged[(programs,)](*arguments, **options)
            if merges:
                merge[(merges,)](*arguments, **options)
    return out
