"""Exact counts of visible pairs per tile, for numeric sizes, without evaluating every pair.

Each tile is first judged as a whole by interval arithmetic (all pairs, none, or unknown); only unknown tiles, those on
the mask's boundary, are evaluated pair by pair. All tiles are judged at once by numpy.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import sympy
from sympy.core.relational import Relational

from attnc.ir.index_eval import Array, Env, evaluate
from attnc.ir.index_terms import axis, is_size, ratio, sides

CHUNK = 1 << 21
"""Tiles judged, and pairs evaluated, at a time."""

Interval = tuple[Any, Any]
"""Of an integer: least and greatest value. Of a condition: whether it holds for all pairs, whether for some (maybe)."""


def tile_counts(
    expr: sympy.Basic,
    sizes: Mapping[str, int],
    q_length: int,
    k_length: int,
    block_m: int,
    block_n: int,
    outer: Mapping[str, int],
) -> Iterator[tuple[Array, Array]]:
    """Visible pairs and all pairs of each tile, int64 ``[query tiles, key tiles]``: slab by slab, for each outer point.

    ``outer`` gives the lengths of the outer axes in ``expr``. Raises KeyError for a size without value.
    """
    values = {s: sympy.Integer(sizes[s.name]) for s in expr.free_symbols if is_size(s)}
    rows, keys = _edges(q_length, block_m), _edges(k_length, block_n)
    step = max(1, CHUNK // len(keys[0]))
    for point in itertools.product(*(range(n) for n in outer.values())):
        here = {axis(a): sympy.Integer(i) for a, i in zip(outer, point, strict=True)}
        for start in range(0, len(rows[0]), step):
            slab = (rows[0][start : start + step], rows[1][start : start + step])
            yield _counts(expr.xreplace(values | here), slab, keys, block_m, block_n)


def _edges(length: int, block: int) -> tuple[Array, Array]:
    """First and last position of each tile."""
    first = np.arange(0, length, block, dtype=np.int64)
    return first, np.minimum(first + block, length) - 1


def _counts(expr: sympy.Basic, rows: Interval, keys: Interval, block_m: int, block_n: int) -> tuple[Array, Array]:
    """Visible pairs and all pairs of the tiles with these first and last rows and keys."""
    (q0, q1), (k0, k1) = rows, keys
    areas = (q1 - q0 + 1)[:, None] * (k1 - k0 + 1)[None, :]
    tiles = {axis("q"): (q0[:, None], q1[:, None]), axis("k"): (k0[None, :], k1[None, :])}
    every, some = (np.broadcast_to(x, areas.shape) for x in _interval(expr, tiles))
    counts = np.where(every, areas, 0)
    unknown_q, unknown_k = np.nonzero(some & ~every)
    step = max(1, CHUNK // (block_m * block_n))
    for start in range(0, len(unknown_q), step):
        tq, tk = unknown_q[start : start + step], unknown_k[start : start + step]
        q = q0[tq, None, None] + np.arange(block_m)[None, :, None]
        k = k0[tk, None, None] + np.arange(block_n)[None, None, :]
        seen = evaluate(expr, Env({"q": q, "k": k})) & (q <= q1[tq, None, None]) & (k <= k1[tk, None, None])
        counts[tq, tk] = seen.sum((1, 2))
    return counts, areas


def _interval(expr: sympy.Basic, tiles: Mapping[sympy.Symbol, Interval]) -> Interval:
    """Bounds of ``expr`` over a tile; sound, and exact for a comparison that is linear in q and k."""
    if expr in (sympy.true, sympy.false):
        return bool(expr), bool(expr)
    if isinstance(expr, sympy.Integer):
        return int(expr), int(expr)
    if isinstance(expr, sympy.Symbol):
        return tiles[expr]
    if isinstance(expr, Relational):
        # the difference is expanded, so that a symbol on both sides counts once
        left, right = sides(expr)
        return _relation(expr, _interval(sympy.expand(left - right), tiles))
    if isinstance(expr, sympy.floor):
        top, bottom = ratio(expr.args[0])
        low, high = _interval(top, tiles)
        return low // int(bottom), high // int(bottom)
    if isinstance(expr, sympy.Piecewise):
        result = _interval(expr.args[-1][0], tiles)
        for value, condition in reversed(expr.args[:-1]):
            (low, high), (every, some) = _interval(value, tiles), _interval(condition, tiles)
            result = (
                np.where(every, low, np.where(some, np.minimum(low, result[0]), result[0])),
                np.where(every, high, np.where(some, np.maximum(high, result[1]), result[1])),
            )
        return result
    return _combine(expr, [_interval(a, tiles) for a in expr.args])


def _relation(expr: Relational, gap: Interval) -> Interval:
    """Whether ``gap`` relates to 0, for all and for some pairs."""
    low, high = gap
    match expr:
        case sympy.StrictLessThan():
            return high < 0, low < 0
        case sympy.LessThan():
            return high <= 0, low <= 0
        case sympy.StrictGreaterThan():
            return low > 0, high > 0
        case sympy.GreaterThan():
            return low >= 0, high >= 0
    same, meets = (low == 0) & (high == 0), (low <= 0) & (high >= 0)
    return (same, meets) if isinstance(expr, sympy.Equality) else (np.logical_not(meets), np.logical_not(same))


def _combine(expr: sympy.Basic, args: list[Interval]) -> Interval:
    lows, highs = [a[0] for a in args], [a[1] for a in args]
    if isinstance(expr, sympy.And):
        return _fold(np.logical_and, lows), _fold(np.logical_and, highs)
    if isinstance(expr, sympy.Or):
        return _fold(np.logical_or, lows), _fold(np.logical_or, highs)
    if isinstance(expr, sympy.Not):
        return np.logical_not(highs[0]), np.logical_not(lows[0])
    if isinstance(expr, sympy.Add):
        return sum(lows), sum(highs)
    if isinstance(expr, sympy.Mul):
        result = args[0]
        for low, high in args[1:]:
            ends = [x * y for x in result for y in (low, high)]
            result = _fold(np.minimum, ends), _fold(np.maximum, ends)
        return result
    if isinstance(expr, sympy.Min | sympy.Max):
        function = np.minimum if isinstance(expr, sympy.Min) else np.maximum
        return _fold(function, lows), _fold(function, highs)
    if isinstance(expr, sympy.Abs):
        return np.maximum(np.maximum(lows[0], -highs[0]), 0), np.maximum(-lows[0], highs[0])
    if isinstance(expr, sympy.Mod) and isinstance(expr.args[1], sympy.Integer):
        divisor = int(expr.args[1])
        same = lows[0] // divisor == highs[0] // divisor
        return np.where(same, lows[0] % divisor, 0), np.where(same, highs[0] % divisor, divisor - 1)
    raise ValueError(f"no bounds for {expr} ({type(expr).__name__})")


def _fold(function: Any, values: list[Any]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = function(result, value)
    return result
