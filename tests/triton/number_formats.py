"""The number formats numpy lacks, as bits: bf16, the two OCP fp8 formats, TF32. Numpy only.

Values are rounded once, whatever they come from, and as the machine code does that Triton emits for sm_90:
``cvt.rn.bf16`` (infinity above the range) and ``cvt.rn.satfinite.e4m3x2`` (the largest number above it).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
QUIET_NAN = np.uint32(0x7FC0)
SIGN = np.uint32(0x80000000)


def read_bf16(bits: Array) -> Array:
    """The float32 numbers that the uint16 ``bits`` are in bf16. Exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def write_bf16(numbers: Array, toward_zero: bool = False) -> Array:
    """bf16 as uint16 of numbers of any dtype: to nearest, ties to even, or towards zero. NaN stays NaN."""
    wide = odd_float32(numbers)
    bits = wide.view(np.uint32)
    carry = np.uint32(0) if toward_zero else np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = (bits + carry) >> np.uint32(16)
    return np.where(np.isnan(wide), QUIET_NAN | (bits & SIGN) >> np.uint32(16), rounded).astype(np.uint16)


def odd_float32(numbers: Array) -> Array:
    """float32, inexact ones with an odd last bit ("round to odd"): rounding the result again rounds only once.

    A float64 just above the middle between two bf16 numbers would otherwise become that middle, and go to even.
    """
    if numbers.dtype in (np.float32, np.float16, np.bool_, np.int8, np.uint8, np.int16, np.uint16):
        return np.array(numbers, dtype=np.float32)
    exact = numbers.astype(np.float64)
    with np.errstate(over="ignore"):
        near = np.array(exact, dtype=np.float32)
    with np.errstate(invalid="ignore"):
        past, inexact = np.abs(near) > np.abs(exact), near != exact
    cut = np.where(past, np.nextafter(near, np.float32(0)), near)
    sticky = (inexact & ~np.isnan(exact)).astype(np.uint32)
    bits: Array = np.ascontiguousarray(cut).view(np.uint32) | sticky
    return bits.view(np.float32)


@dataclass(frozen=True)
class Fp8:
    """An 8-bit format: a sign, then an exponent with ``bias``, then ``mantissa`` bits."""

    mantissa: int
    bias: int
    largest: int
    """The bits of the largest number; infinity (e5m2 only) and NaN lie above."""
    infinity: int | None
    nan: int

    @cached_property
    def magnitudes(self) -> Array:
        """float64 [128]: what the bits 0 … 127 stand for."""
        bits = np.arange(128)
        exponent, fraction = bits >> self.mantissa, (bits & (1 << self.mantissa) - 1) / (1 << self.mantissa)
        normal = (1 + fraction) * 2.0 ** (exponent - self.bias)
        table = np.where(exponent == 0, fraction * 2.0 ** (1 - self.bias), normal)
        table[self.largest + 1 :] = np.nan
        if self.infinity is not None:
            table[self.infinity] = np.inf
        return table

    def read(self, bits: Array) -> Array:
        """float32 numbers of uint8 bits. Exact."""
        signed = np.concatenate([self.magnitudes, -self.magnitudes]).astype(np.float32)
        return signed[bits]

    def write(self, numbers: Array, toward_zero: bool = False) -> Array:
        """uint8 bits of numbers: to nearest, ties to even, or towards zero; the largest number above the range."""
        exact = numbers.astype(np.float64)
        size, finite = np.nan_to_num(np.abs(exact), nan=0.0), self.magnitudes[: self.largest + 1]
        below = np.searchsorted(finite, size, side="right") - 1
        above = np.minimum(below + 1, self.largest)
        down, up = size - finite[below], finite[above] - size
        goes_up = (up < down) | ((up == down) & (below % 2 == 1))
        magnitude = below if toward_zero else np.where(goes_up, above, below)
        magnitude = np.where(np.isnan(exact), self.nan, magnitude)
        return (magnitude | np.signbit(exact) << 7).astype(np.uint8)


E4M3 = Fp8(mantissa=3, bias=7, largest=0x7E, infinity=None, nan=0x7F)
E5M2 = Fp8(mantissa=2, bias=15, largest=0x7B, infinity=0x7C, nan=0x7F)


def cut_tf32(numbers: Array) -> Array:
    """float32 with the 13 low bits gone: what a tensor core reads of an operand that nothing rounded before."""
    return (np.ascontiguousarray(numbers).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def round_tf32(numbers: Array) -> Array:
    """float32 at TF32's 10 bits: to nearest, ties away from zero (``cvt.rna.tf32.f32``). NaN and infinity stay."""
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(numbers), rounded, bits).view(np.float32)
