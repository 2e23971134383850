"""Head dimensions in parts whose lengths are powers of two, as blocks of Triton have to be."""

from __future__ import annotations

LEAST = 16
"""The shortest contraction of a matrix instruction."""


def parts(length: int) -> tuple[int, int]:
    """(high, low) with high + low ≥ ``length``, both powers of two, low 0 where one part serves as well.

    80 is 64 + 16, 96 is 64 + 32, 40 is 32 + 16 (rather than 64). Raises ValueError for a negative length.
    """
    if length < 0:
        raise ValueError(f"a head dimension of {length}")
    whole = max(LEAST, _power(length))
    if length == whole or whole == LEAST:
        return whole, 0
    high = whole // 2
    low = max(LEAST, _power(length - high))
    return (high, low) if high >= LEAST and high + low < whole else (whole, 0)


def _power(length: int) -> int:
    """The least power of two that is not below ``length``."""
    return 1 << max(0, length - 1).bit_length()
