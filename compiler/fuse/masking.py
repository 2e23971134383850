"""Masks read off a score: which pairs count, what the score is there, and what the source put elsewhere.

A select between a score and a fill, or a fill added to a score, is a mask. A fill is −inf or a value of at most
:data:`LARGEST_FILL`. For a row with a visible key a filled pair contributes exactly nothing as long as
|score| < |fill|/2 − 104 (exp underflows to 0 in float32); a smaller fill is an ordinary bias and stays one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import sympy
from sympy.core.relational import Relational

from attnc.ir import score as sc
from attnc.ir.attention import KEY, QUERY, Fill
from attnc.ir.index import Load, axis
from attnc.ir.types import DType

LARGEST_FILL = -1e4


@dataclass(frozen=True)
class Masked:
    """``node`` equals ``visible`` where ``mask`` holds, and is (or contains) a fill elsewhere.

    ``visible`` None: nothing is visible (the node is a fill itself).
    """

    mask: sympy.Basic
    visible: sc.Node | None
    fills: frozenset[float] = frozenset()


def is_fill(value: float) -> bool:
    """Whether a constant is low enough to hide what it is put on."""
    return value <= LARGEST_FILL


def split(node: sc.Node) -> Masked:
    """Separate the mask from the score."""
    if node.op == "const":
        value = float(node.value)
        return Masked(sympy.false, None, frozenset((value,))) if is_fill(value) else Masked(sympy.true, node)
    if node.op == "where":
        return _split_where(node)
    if node.op == "cast" and node.dtype.is_float and node.args[0].dtype.is_float:
        inner = split(node.args[0])
        visible = inner.visible if inner.visible is None else sc.cast(inner.visible, node.dtype)
        return Masked(inner.mask, visible, inner.fills)
    if node.op == "add":
        return _split_add(node)
    if node.op == "max":
        return _split_max(node)
    if (limit := _integer_limit(node)) is not None:
        return Masked(limit, node, frozenset((LARGEST_FILL,)))
    if node.op in ("mul", "div") and node.args[1].op == "const" and float(node.args[1].value) > 0:
        return _split_scaled(node)
    return Masked(sympy.true, node)


def fill_class(fills: frozenset[float]) -> Fill:
    """The fill class of a site: minus infinity unless some fill is finite; then the finite one nearest zero."""
    finite = [value for value in fills if not math.isinf(value)]
    return Fill(max(finite)) if finite else Fill()


def guarded(visible: sc.Node, fill: Fill) -> sc.Node | None:
    """The visible score with −inf for what a loaded bias put as low as the fill; None where no loaded data is added.

    Such data may be a mask itself. A row where it hides all that the formula leaves visible is then found dead, and
    computed as written; in any other row exp of what is replaced underflows to 0 anyway.
    """
    if fill.value is None or not _adds_data(visible):
        return None
    low = sc.compare("le", visible, sc.const(fill.value / 2, visible.dtype))
    return sc.where(low, sc.const(-math.inf, visible.dtype), visible)


def _adds_data(node: sc.Node) -> bool:
    """Whether a loaded float is a term of the score, not just a factor on Q·Kᵀ."""
    if node.op in ("mul", "div") and sc.uses_qk(node):
        return any(_adds_data(a) for a in node.args if sc.uses_qk(a))
    return node.op == "load" or any(map(_adds_data, node.args))


def readable(mask: sympy.Basic) -> sympy.Basic:
    """The same condition as people write it: negations pushed to the comparisons, ``k`` alone on the left."""
    pushed = sympy.to_nnf(mask, simplify=False)
    return pushed.replace(lambda e: isinstance(e, Relational), _oriented)


def _oriented(relation: Relational) -> Relational:
    gap = sympy.expand(relation.lhs - relation.rhs)
    key, query = axis(KEY), axis(QUERY)
    if gap.coeff(key) == -1:
        relation, gap = relation.reversed, -gap
    rest = sympy.expand(gap - key)
    if gap.coeff(key) != 1 or rest.has(key):
        return relation
    if rest.coeff(query) == -1 and sympy.expand(rest + query) != 0:
        return relation.func(key - query, -(rest + query), evaluate=False)
    return relation.func(key, -rest, evaluate=False)


def as_condition(node: sc.Node) -> sympy.Basic | None:
    """A boolean node as an index formula; None where it compares floats."""
    if node.op == "index" and node.dtype is DType.B1:
        return node.value
    if node.op == "const":
        return sympy.true if node.value else sympy.false
    if node.op == "load" and not node.dtype.is_float:
        name, indices = node.value
        return sympy.Ne(Load(sympy.Symbol(name), *indices), 0)
    if node.op in ("and", "or", "not"):
        parts = [as_condition(a) for a in node.args]
        if any(part is None for part in parts):
            return None
        return {"and": sympy.And, "or": sympy.Or, "not": sympy.Not}[node.op](*parts)
    return None


def loads(node: sc.Node | None) -> Iterator[str]:
    """Names of the side operands a node reads."""
    for part in sc.walk(node) if node is not None else ():
        if part.op == "load":
            yield part.value[0]
        elif part.op == "index":
            yield from formula_loads(part.value)


def formula_loads(expr: sympy.Basic) -> Iterator[str]:
    """Names of the side operands a formula reads."""
    for load in sorted(expr.atoms(Load), key=str):
        yield load.args[0].name


def _split_where(node: sc.Node) -> Masked:
    condition = as_condition(node.args[0])
    if condition is None:
        return Masked(sympy.true, node)
    then, other = split(node.args[1]), split(node.args[2])
    mask = sympy.Or(sympy.And(condition, then.mask), sympy.And(sympy.Not(condition), other.mask))
    if then.visible is None or other.visible is None:
        visible = then.visible if other.visible is None else other.visible
        if then.visible is None and other.visible is not None:
            mask = sympy.And(sympy.Not(condition), other.mask)
        elif then.visible is not None:
            mask = sympy.And(condition, then.mask)
        else:
            mask = sympy.false
    else:
        visible = sc.where(node.args[0], then.visible, other.visible)
    return Masked(mask, visible, then.fills | other.fills)


def _split_add(node: sc.Node) -> Masked:
    left, right = (split(a) for a in node.args)
    mask, fills = sympy.And(left.mask, right.mask), left.fills | right.fills
    if left.visible is None or right.visible is None:
        return Masked(sympy.false, None, fills)
    for zero, kept in ((left.visible, right.visible), (right.visible, left.visible)):
        if zero.op == "const" and zero.value == 0:
            return Masked(mask, sc.cast(kept, node.dtype), fills)
    return Masked(mask, sc.binary("add", left.visible, right.visible, node.dtype), fills)


def _integer_limit(node: sc.Node) -> sympy.Basic | None:
    """Where ``c · n``, n a loaded integer, is no fill: ``(1 - attention_mask) * -10000``. None for other nodes."""
    factor = 1.0
    if node.op == "mul" and node.args[1].op == "const":
        node, factor = node.args[0], float(node.args[1].value)
    number = _integer(node)
    if number is None or not number.has(Load) or factor == 0 or math.isnan(factor):
        return None
    bound = math.ceil(LARGEST_FILL / -abs(factor))
    return sympy.Lt(number, bound) if factor < 0 else sympy.Gt(number, -bound)


def _integer(node: sc.Node) -> sympy.Expr | None:
    """An integer formula behind casts and a whole constant added; rounding keeps the order of integers."""
    if node.op == "index" and node.dtype is not DType.B1:
        return node.value
    if node.op == "const" and float(node.value).is_integer():
        return sympy.Integer(int(node.value))
    if node.op == "cast" and node.dtype.is_float:
        return _integer(node.args[0])
    if node.op in ("add", "sub"):
        left, right = map(_integer, node.args)
        if left is None or right is None or (left.has(Load) and right.has(Load)):
            return None
        return left + right if node.op == "add" else left - right
    return None


def _split_max(node: sc.Node) -> Masked:
    """A fill as lower bound: lower fills become it, and so does a −inf that was loaded."""
    bound, other = node.args if node.args[0].op == "const" else node.args[::-1]
    if bound.op != "const" or not is_fill(float(bound.value)):
        return Masked(sympy.true, node)
    inner, low = split(other), float(bound.value)
    fills = frozenset(max(fill, low) for fill in inner.fills)
    visible = inner.visible if inner.visible is None else sc.binary("max", inner.visible, bound, node.dtype)
    return Masked(inner.mask, visible, fills)


def _split_scaled(node: sc.Node) -> Masked:
    """A positive factor on a masked score: the fill is scaled too, and must still be one."""
    inner = split(node.args[0])
    factor = float(node.args[1].value)
    fills = frozenset(f * factor if node.op == "mul" else f / factor for f in inner.fills)
    if inner.visible is None or not all(map(is_fill, fills)):
        return Masked(sympy.true, node)
    return Masked(inner.mask, sc.binary(node.op, inner.visible, node.args[1], node.dtype), fills)
