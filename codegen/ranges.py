"""Intervals of integer values: what fits 32 bits needs no 64. Axis lengths and named sizes are below 2^30."""

from __future__ import annotations

from collections.abc import Sequence

Range = tuple[int, int]
"""Least and greatest value, both included."""

LENGTH_LIMIT = 1 << 30
INT32: Range = (-(1 << 31), (1 << 31) - 1)
INT64: Range = (-(1 << 63), (1 << 63) - 1)
INDEX: Range = (0, LENGTH_LIMIT - 1)
LENGTH: Range = (0, LENGTH_LIMIT - 1)
SIZE: Range = (1 - LENGTH_LIMIT, LENGTH_LIMIT - 1)
STORED: dict[str, Range] = {
    "i64": INT64,
    "i32": INT32,
    "i16": (-(1 << 15), (1 << 15) - 1),
    "i8": (-128, 127),
    "u8": (0, 255),
}
"""What an element in memory may hold, by dtype."""


def fits_int32(values: Range) -> bool:
    """Whether 32-bit integers hold every value."""
    return INT32[0] <= values[0] and values[1] <= INT32[1]


def inside_int32(values: Range) -> bool:
    """Whether 32-bit integers hold it and never either extreme, so that comparing with a saturated number is exact."""
    return INT32[0] < values[0] and values[1] < INT32[1]


def int_range(op: str, operands: Sequence[Range]) -> Range:
    """The interval of an integer op's result; all of 64 bits where nothing is known of the op."""
    (a, b), *rest = operands
    c, d = rest[0] if rest else (0, 0)
    match op:
        case "add":
            corners = [a + c, b + d]
        case "sub":
            corners = [a - d, b - c]
        case "mul":
            corners = [a * c, a * d, b * c, b * d]
        case "neg":
            corners = [-b, -a]
        case "abs":
            corners = [0 if a <= 0 <= b else min(abs(a), abs(b)), max(abs(a), abs(b))]
        case "min":
            corners = [min(a, c), min(b, d)]
        case "max":
            corners = [max(a, c), max(b, d)]
        case "floordiv" if c > 0:
            corners = [a // c, a // d, b // c, b // d]
        case "mod" if c > 0:
            corners = [0, d - 1]
        case _:
            return INT64
    return max(min(corners), INT64[0]), min(max(corners), INT64[1])
