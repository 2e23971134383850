"""Names of masks for people: ``causal, window 16``, ``chunked 512``, ``causal & padding``. Nothing depends on them."""

from __future__ import annotations

from collections.abc import Collection

import sympy
from sympy.core.relational import Relational

from attnc.ir.index_simplify import gap
from attnc.ir.index_terms import axis, loads, ratio
from attnc.ir.index_text import show

QUERY, KEY = axis("q"), axis("k")


def describe(affine: Collection[sympy.Basic], residual: Collection[sympy.Basic]) -> str:
    """``full`` without conjuncts; unknown affine ones make ``custom``."""
    names = _affine_names(affine)
    kinds = sorted({_residual_name(c) for c in residual})
    return " & ".join([", ".join(names), *kinds] if names else kinds) or "full"


def _affine_names(conjuncts: Collection[sympy.Basic]) -> list[str]:
    ahead, behind, others = [], [], []
    for conjunct in conjuncts:
        slack = _slack(conjunct)
        if slack is None:
            others.append(_name(conjunct))
        elif slack[0] > 0:
            ahead.append(slack[1])
        else:
            behind.append(slack[1])
    return _band(ahead, behind) + sorted(set(others))


def _band(ahead: list[sympy.Expr], behind: list[sympy.Expr]) -> list[str]:
    """Names of −behind ≤ k − q ≤ ahead, either side may be missing."""
    if not ahead:
        return [f"window {show(b)} back" for b in behind]
    if any(_is_causal(a) for a in ahead):
        # a window of w keys ends at the causal limit
        return ["causal", *(f"window {show(sympy.expand(b + ahead[0] + 1))}" for b in behind)]
    if behind:
        return [f"window -{show(behind[0])}..+{show(ahead[0])}"]
    return [f"lookahead {show(ahead[0])}"]


def _is_causal(slack: sympy.Expr) -> bool:
    """k ≤ q + slack with slack 0, or an offset that is a size (keys in a cache, a longer key axis)."""
    return bool(slack == 0 or slack.free_symbols)


def _slack(conjunct: sympy.Basic) -> tuple[int, sympy.Expr] | None:
    """(1, a) for k − q ≤ a, (−1, b) for q − k ≤ b, with a and b free of q and k; else None."""
    room = gap(conjunct) if isinstance(conjunct, Relational) else None
    if room is None:
        return None
    room = sympy.expand(room)
    sign = room.coeff(QUERY)
    rest = sympy.expand(room - sign * (QUERY - KEY))
    if sign not in (1, -1) or rest.has(QUERY, KEY):
        return None
    return int(sign), rest


def _name(conjunct: sympy.Basic) -> str:
    match conjunct:
        case sympy.Equality(lhs=sympy.floor() as left, rhs=sympy.floor() as right) if {*left.free_symbols} != {
            *right.free_symbols
        }:
            width = ratio(left.args[0])[1]
            return f"chunked {show(width)}"
        case sympy.Or():
            return _alternatives(conjunct)
        case sympy.Equality(lhs=sympy.Mod() as left):
            return f"dilated {show(left.args[1])}"
    return "custom"


def _alternatives(conjunct: sympy.Or) -> str:
    """Prefix (k < n, else causal) and global + local."""
    prefixes, rest = [], []
    for part in conjunct.args:
        room = gap(part) if isinstance(part, Relational) else None
        if room is not None and room.coeff(KEY) == -1 and not room.has(QUERY):
            prefixes.append(sympy.expand(room + KEY + 1))
        elif room is None or room.has(KEY):
            rest.append(part)
    names = _affine_names([c for r in rest for c in sympy.And.make_args(r)]) if len(rest) == 1 else []
    if prefixes and names and "custom" not in names:
        kind = "prefix" if names == ["causal"] else "global"
        return f"{kind} {show(prefixes[0])}" + ("" if kind == "prefix" else " + " + ", ".join(names))
    return "custom"


def _residual_name(conjunct: sympy.Basic) -> str:
    """By which positions the loads depend on."""
    used = [{s for i in load.indices for s in i.free_symbols} & {QUERY, KEY} for load in loads(conjunct)]
    if not used:
        return "custom"
    if any(u == {QUERY, KEY} for u in used):
        return "tensor"
    if {QUERY} in used and {KEY} in used and isinstance(conjunct, sympy.Equality):
        return "documents"
    if {KEY} in used and not conjunct.has(QUERY):
        return "padding"
    return "loaded"
