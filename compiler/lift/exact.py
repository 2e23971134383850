"""Exact arithmetic of dtypes: which numbers they hold, how floats round, and bounds of integer expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import sympy

from attnc.compiler.lift.element import EXACT_INTEGER, Leaf, Refused, as_leaf, constant
from attnc.ir.index import Load
from attnc.ir.types import DType

MANTISSA = {DType.F64: 53, DType.F32: 24, DType.F16: 11, DType.BF16: 8}
"""Bits of the significand, the hidden one included: integers up to 2**bits are exact."""

Interval = tuple[float, float]
ANY: Interval = (-math.inf, math.inf)
Bounds = Callable[[sympy.Basic], Interval]


def int_range(dtype: DType) -> tuple[int, int]:
    """Smallest and largest number of an integer or boolean dtype."""
    if dtype is DType.B1:
        return 0, 1
    if dtype.value[0] == "u":
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def round_to(value: float, dtype: DType) -> float:
    """A float as ``dtype`` holds it: through float32 for the 16-bit ones, as the kernels of the host compute.

    Raises Refused for a dtype with no rounding here and for an integer that float64 can't hold.
    """
    if isinstance(value, int) and abs(value) > EXACT_INTEGER:
        raise Refused(f"{value} is not exact in floating point")
    if dtype is DType.F64:
        return float(value)
    if dtype not in MANTISSA:
        raise Refused(f"no exact rounding to {dtype.value}")
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(value)
        if dtype is DType.F16:
            return float(np.float16(single))
        return float(single) if dtype is DType.F32 or not np.isfinite(single) else _bfloat16(single)


def _bfloat16(value: np.float32) -> float:
    """Round to nearest, ties to even: add half of the dropped range, and one more where the kept part is odd."""
    bits = int(value.view(np.uint32))
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return float(np.uint32(bits).view(np.float32))


def fit(leaf: Leaf, dtype: DType, bounds: Bounds) -> Leaf:
    """``leaf`` where ``dtype`` holds it exactly, or rounded where it is a constant of a float dtype.

    Raises Refused where the value may overflow an integer dtype (64-bit ones are taken to hold every position) or
    lose bits in a float one.
    """
    value = constant(leaf)
    if dtype.is_float:
        if value is not None:
            return as_leaf(round_to(value, dtype))
        _require(leaf, bounds, 2 ** MANTISSA.get(dtype, 0), dtype)
        return leaf
    if isinstance(leaf, float) or not (dtype.is_int or dtype is DType.B1):
        raise Refused(f"{leaf} is not a number of {dtype.value}")
    low, high = int_range(dtype)
    if value is not None and not low <= value <= high:
        raise Refused(f"{value} overflows {dtype.value}")
    if value is None and dtype.bits < 32:
        lo, hi = bounds(leaf)
        if lo < low or hi > high:
            raise Refused(f"{leaf} may overflow {dtype.value}")
    return leaf


def _require(leaf: Leaf, bounds: Bounds, limit: int, dtype: DType) -> None:
    low, high = bounds(leaf)
    if low < -limit or high > limit:
        raise Refused(f"{leaf} may not be exact in {dtype.value}")


def interval(expr: sympy.Basic, symbols: Mapping[sympy.Symbol, Interval], loads: Callable[[str], Interval]) -> Interval:
    """Bounds of an integer expression by interval arithmetic; infinite where nothing is known."""

    def inside(part: sympy.Basic) -> Interval:
        return interval(part, symbols, loads)

    if isinstance(expr, sympy.Integer):
        return int(expr), int(expr)
    if isinstance(expr, sympy.Symbol):
        return symbols.get(expr, ANY)
    if isinstance(expr, Load):
        return loads(expr.name)
    if isinstance(expr, sympy.Add):
        parts = [inside(a) for a in expr.args]
        return sum(p[0] for p in parts), sum(p[1] for p in parts)
    if isinstance(expr, sympy.Mul):
        return _product([inside(a) for a in expr.args])
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and expr.exp > 0:
        return _product([inside(expr.base)] * int(expr.exp))
    if isinstance(expr, sympy.Min | sympy.Max):
        parts = [inside(a) for a in expr.args]
        best = min if isinstance(expr, sympy.Min) else max
        return best(p[0] for p in parts), best(p[1] for p in parts)
    if isinstance(expr, sympy.Mod):
        low, high = inside(expr.args[1])
        return (0, high - 1) if low > 0 else ANY
    if isinstance(expr, sympy.Rational):
        return float(expr), float(expr)
    if isinstance(expr, sympy.floor):
        low, high = inside(expr.args[0])
        return low - 1, high
    if isinstance(expr, sympy.Piecewise):
        parts = [inside(v) for v, _ in expr.args]
        return min(p[0] for p in parts), max(p[1] for p in parts)
    return ANY


def _product(parts: list[Interval]) -> Interval:
    low, high = parts[0]
    for a, b in parts[1:]:
        ends = [0 if 0 in (x, y) else x * y for x in (low, high) for y in (a, b)]
        low, high = min(ends), max(ends)
    return low, high
