"""New rows of keys or values into pages, quantised as the pages' dtype says.

Stands alone: nothing is put into this text. Codes and scales are those of plain torch, bit for bit, so divisions are
IEEE's (``tl.div_rn``) and rounding is by a sum that has no bits left behind the point.

    STORE     PLAIN: pages of floats; I8, F8: a row has one scale; I4: two features a byte, a scale for each GROUP
    D         features of a row; COLUMNS the power of two that covers them
    ROWS      tokens of a program, which writes one head of them
"""

import torch
import triton
import triton.language as tl

PLAIN = tl.constexpr(0)
I8 = tl.constexpr(1)
F8 = tl.constexpr(2)
I4 = tl.constexpr(3)
GROUP = tl.constexpr(32)
NUM_WARPS = 4


@triton.jit
def whole(x):
    """x, below 2²² in size, to the nearest integer, halves to even; NaN is 0."""
    return tl.where(x == x, (x + 12582912.0) - 12582912.0, 0.0)


@triton.jit
def clamped(x, LOW: tl.constexpr, HIGH: tl.constexpr):
    """x between LOW and HIGH; NaN stays."""
    return tl.where(x > HIGH, HIGH, tl.where(x < LOW, LOW, x))


@triton.jit
def quotient(x, scale):
    return tl.div_rn(x, tl.where(scale == 0.0, 1.0, scale) + tl.zeros_like(x))


@triton.jit
def row_codes(x, LARGEST: tl.constexpr):
    """(codes, scale [ROWS, 1]) of rows by their maximum. A NaN makes the scale NaN, an infinity makes it infinite."""
    broken = tl.max((x != x).to(tl.int32), 1, keep_dims=True) > 0
    largest = tl.max(tl.where(x == x, tl.abs(x), 0.0), 1, keep_dims=True)
    scale = tl.where(broken, float("nan"), tl.div_rn(largest, tl.full(largest.shape, LARGEST, tl.float32)))
    return clamped(quotient(x, scale), -LARGEST, LARGEST), scale


@triton.jit
def group_codes(x):
    """(codes, scale [ROWS, groups, 1]) of groups: the element of largest magnitude, the first of equals, becomes −8.

    A group with a NaN or an infinity has the scale NaN.
    """
    size = tl.abs(x)
    broken = tl.max(((x != x) | (size == float("inf"))).to(tl.int32), 2, keep_dims=True) > 0
    place = tl.arange(0, GROUP)[None, None, :]
    first = tl.min(tl.where(size == tl.max(size, 2, keep_dims=True), place, GROUP), 2, keep_dims=True)
    extreme = tl.max(tl.where(place == first, x, float("-inf")), 2, keep_dims=True)
    scale = tl.where(broken, float("nan"), clamped(extreme * -0.125, -65504.0, 65504.0)).to(tl.float16)
    return whole(clamped(quotient(x, scale.to(tl.float32)), -8.0, 7.0)).to(tl.int32), scale


@triton.jit(do_not_specialize=["tokens"])
def kv_write(
    X, Pages, Scale, Slots, tokens, page_size, x_token, x_head, x_col, page, page_head, page_slot,
    scale_page, scale_head, scale_slot,
    STORE: tl.constexpr, D: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One program for a tile of tokens and one head: X [tokens, heads, D] to its slots of Pages."""
    head = tl.cast(tl.program_id(1), tl.int64)
    token = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    kept = token < tokens
    slot = tl.load(Slots + token, mask=kept, other=0).to(tl.int64)
    number, offset = slot // page_size, slot % page_size
    at = Pages + (number * page + offset * page_slot + head * page_head)[:, None]
    scale_at = Scale + number * scale_page + offset * scale_slot + head * scale_head

    column = tl.arange(0, COLUMNS)
    inside = kept[:, None] & (column < D)[None, :]
    place = X + head * x_head + (tl.cast(token, tl.int64) * x_token)[:, None] + (column * x_col)[None, :]
    x = tl.load(place, mask=inside, other=0.0)
    if STORE == PLAIN:
        tl.store(at + column[None, :], x.to(tl.float32).to(Pages.dtype.element_ty), mask=inside)
    elif STORE == I4:
        groups = tl.reshape(x.to(tl.float32), [ROWS, COLUMNS // GROUP, GROUP])
        codes, scale = group_codes(groups)
        low, high = tl.split(tl.reshape(codes & 15, [ROWS, COLUMNS // 2, 2]))
        byte = tl.arange(0, COLUMNS // 2)
        tl.store(at + byte[None, :], (low | (high << 4)).to(tl.uint8), mask=kept[:, None] & (2 * byte < D)[None, :])
        group = tl.arange(0, COLUMNS // GROUP)
        scale = tl.reshape(scale, [ROWS, COLUMNS // GROUP])
        tl.store(scale_at[:, None] + group[None, :], scale, mask=kept[:, None] & (group * GROUP < D)[None, :])
    else:
        if STORE == I8:
            codes, scale = row_codes(x.to(tl.float32), 127.0)
            codes = whole(codes)
        else:
            codes, scale = row_codes(x.to(tl.float32), 448.0)
        tl.store(at + column[None, :], codes.to(Pages.dtype.element_ty), mask=inside)
        tl.store(scale_at, tl.reshape(scale, [ROWS]), mask=kept)


STORES = {torch.int8: 1, torch.float8_e4m3fn: 2, torch.uint8: 3}
"""Stores with scales, by the dtype of their pages."""
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def check(x, pages, scale, slots):
    """Raises ValueError for operands that don't fit each other."""
    store = STORES.get(pages.dtype, 0)
    if (pages.dtype not in STORES and pages.dtype not in FLOATS) or x.dtype not in FLOATS:
        raise ValueError(
            f"x is {x.dtype} and pages are {pages.dtype}; known: {', '.join(map(str, FLOATS))} and {[*STORES]}"
        )
    if x.dim() != 3 or pages.dim() != 4 or slots.shape != x.shape[:1]:
        raise ValueError(f"x is {list(x.shape)}, pages {list(pages.shape)}, slots {list(slots.shape)}")
    heads, features = x.shape[1:]
    if pages.shape[1] != heads or pages.shape[3] != (-(-features // 2) if store == 3 else features):
        raise ValueError(f"x {list(x.shape)} does not fit {pages.dtype} pages {list(pages.shape)}")
    groups = [-(-features // GROUP.value)] if store == 3 else []
    if (scale is None) != (store == 0) or (store and list(scale.shape) != [*pages.shape[:3], *groups]):
        raise ValueError(
            f"scales {None if scale is None else list(scale.shape)} for {pages.dtype} pages {list(pages.shape)}"
        )
    if pages.stride(3) != 1 or (store == 3 and scale.stride(3) != 1):
        raise ValueError("the features of a page and their scales have to be contiguous")


def prepared(x, pages, scale, slots):
    """(grid, arguments, constants) of a call. Raises ValueError for operands that don't fit each other."""
    check(x, pages, scale, slots)
    tokens, heads, features = x.shape
    columns = max(32, 1 << max(0, features - 1).bit_length())
    rows = max(1, (128 if triton.knobs.runtime.interpret else 16) * 128 // columns)
    strides = [*x.stride(), *pages.stride()[:3], *((0, 0, 0) if scale is None else scale.stride()[:3])]
    arguments = (x, pages, pages if scale is None else scale, slots, tokens, pages.shape[2], *strides)
    constants = {"STORE": STORES.get(pages.dtype, 0), "D": features, "COLUMNS": columns, "ROWS": rows}
    return (-(-tokens // rows), heads), arguments, constants


def write(x, pages, scale, slots):
    """Store rows x [T, heads, D], any strides, at ``slots`` i64 [T] (page · page_size + offset, each once) of pages.

    ``pages`` [num_pages, heads, page_size, …] and ``scale``, None for pages of floats, are written in place. Raises
    ValueError for operands that don't fit each other.
    """
    grid, arguments, constants = prepared(x, pages, scale, slots)
    if 0 not in (*grid, x.shape[2]):
        with torch.cuda.device_of(x):
            kv_write[grid](*arguments, **constants, num_warps=NUM_WARPS)
