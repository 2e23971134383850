"""Launching the kernel. Constants of the plan (AXES, OUTER_AXES, OPERAND_DTYPES, …) stand above this text."""

import torch


def axis_lengths(q, k, v):
    """The length of every axis. Raises ValueError where operands disagree or have other dimensions than the plan's."""
    length = {}
    for name, operand in (("q", q), ("k", k), ("v", v)):
        if operand.dim() != len(AXES[name]):
            raise ValueError(f"{name} has {operand.dim()} dimensions, expected {', '.join(AXES[name])}")
        for axis, size in zip(AXES[name], operand.shape):
            if length.setdefault(axis, STATIC.get(axis, size)) != size:
                raise ValueError(f"operand {name}: axis {axis} is {size} long, expected {length[axis]}")
    return length


def head_parts(length):
    """(high, low): powers of two that cover a head dimension, low 0 where one does."""
    whole = max(16, 1 << max(0, length - 1).bit_length())
    high, low = whole // 2, max(16, 1 << max(0, length - whole // 2 - 1).bit_length())
    return (whole, 0) if length == whole or high < 16 or high + low >= whole else (high, low)


def prepared(q, k, v, sides=(), sizes=(), out_dtype=None):
    """(out, lse, programs, arguments) of a call: the results to be written, and what the kernel is launched with.

    Raises ValueError for operands that don't fit the plan.
    """
    length = axis_lengths(q, k, v)
    check_sides(sides, sizes, length)
    out = q.new_empty([length[a] for a in AXES["out"]], dtype=out_dtype or OUT_DTYPE)
    lse_axes = AXES["lse"] if RETURNS_LSE.value else ()
    lse = q.new_empty([length[a] for a in lse_axes] if lse_axes else [0], dtype=torch.float32)
    programs = -(-length["q"] // BLOCK_M.value) if length["e"] else 0
    for axis in OUTER_AXES:
        programs *= length[axis]
    strides = [s for operand in (q, k, v, out) for s in operand.stride()]
    strides += lse.stride() if lse_axes else [0] * len(AXES["lse"])
    numbers = [s for side in sides for s in side.stride()]
    numbers += [length["q"], length["k"], *(length[a] for a in OUTER_AXES), *sizes]
    d, e = length["d"], length["e"]
    arguments = (q, k, v, out, lse, *sides, *strides, *numbers, d, *head_parts(d), e, *head_parts(e))
    return out, lse, programs, arguments


def attention(q, k, v, sides=(), sizes=(), out_dtype=None):
    """(out, lse): out has the dimensions AXES["out"]; lse is float32, of size 0 where the plan returns none.

    Operands may have any strides; contiguous features are fast. Raises ValueError for operands that don't fit the plan.
    """
    out, lse, programs, arguments = prepared(q, k, v, sides, sizes, out_dtype)
    if programs:
        with torch.cuda.device_of(q):
            prefill[(programs,)](*by_descriptor(*arguments), num_warps=NUM_WARPS, num_stages=NUM_STAGES)
    return out, lse
