"""Scores that know the total length by a number for each row only.

ALiBi as MPT writes it adds slope · (k + 1 − S). A softmax does not see what all scores of a row have in common, so a
term that is added to the score may lose whatever in it does not depend on the key.
"""

from __future__ import annotations

import dataclasses
import math

import sympy

from attnc.ir import index as ix
from attnc.ir import score as sc
from attnc.ir.attention import KEY, AttentionSpec
from attnc.ir.types import size

LEAST_FILL = -5e3
"""Half of the smallest fill there is (an additive constant above −1e4 is a bias)."""


def without_shift(spec: AttentionSpec, length: str) -> AttentionSpec:
    """The attention with the size ``length`` taken out of terms that are added to its scores, where they allow it.

    What the size is still in afterwards depends on it by more than a number for each row.
    """
    if length not in spec.sizes or spec.softmax != "plain":
        return spec
    score, visible = (_without(formula, size(length)) for formula in (spec.score, spec.visible))
    left = dataclasses.replace(spec, score=score, visible=visible)
    return dataclasses.replace(left, sizes=tuple(n for n in spec.sizes if n != length or _reads(left, n)))


def _reads(spec: AttentionSpec, length: str) -> bool:
    formulas = [f for f in (spec.score, spec.visible, spec.weight, spec.sink) if f is not None]
    return length in ix.sizes_of(spec.mask).union(*map(sc.sizes_of, formulas))


def _without(node: sc.Node, length: sympy.Symbol) -> sc.Node:
    """A score without ``length`` in the terms it adds."""
    if length.name not in sc.sizes_of(node):
        return node
    match node.op:
        case "add" | "sub":
            left, right = (_without(arg, length) for arg in node.args)
            return sc.binary(node.op, left, right)
        case "where":
            return _chosen(node, length)
    return _scaled(node, length) or node


def _chosen(node: sc.Node, length: sympy.Symbol) -> sc.Node:
    """A choice of scores; the condition may test whether the score is a fill, and nothing else that knows the size."""
    condition, hidden, kept = node.args
    bare = _without(kept, length)
    if is_fill_test(node):
        return sc.where(sc.substitute(condition, {kept: bare}), hidden, bare)
    return node if _has(condition, length) else sc.where(condition, _without(hidden, length), bare)


def is_fill_test(node: sc.Node) -> bool:
    """Whether a score is ``where(x <= fill / 2, −inf, x)``: what holds no fill stays as it is.

    A score is taken to be far from its fills (docs/architecture.md), so a number for each row changes no such test.
    """
    condition, hidden, kept = node.args
    if node.op != "where" or condition.op != "le" or condition.args[0] is not kept:
        return False
    bound = condition.args[1]
    return bound.op == "const" and bound.value <= LEAST_FILL and hidden.op == "const" and hidden.value == -math.inf


def _scaled(node: sc.Node, length: sympy.Symbol) -> sc.Node | None:
    """An index, or its product with numbers of the row, without what ``length`` adds to it for every key."""
    if node.op != "mul":
        return _index(node, length)
    for place, part in enumerate(node.args):
        factor = node.args[1 - place]
        bare = _scaled(part, length)
        if bare is not None and KEY not in sc.axes_of(factor) and not sc.uses_qk(factor) and not _has(factor, length):
            return sc.binary("mul", *((factor, bare) if place else (bare, factor)))
    return None


def _index(node: sc.Node, length: sympy.Symbol) -> sc.Node | None:
    """An index as a number, without what ``length`` adds for every key; None for anything else."""
    if node.op == "cast":
        inside = _index(node.args[0], length)
        return None if inside is None else sc.cast(inside, node.dtype)
    if node.op != "index" or ix.loads(node.value):
        return None
    bare = sympy.expand(node.value.subs(length, 0))
    shift = sympy.expand(node.value - bare)
    return None if shift.has(ix.axis(KEY)) else sc.index(bare, node.dtype)


def _has(node: sc.Node, length: sympy.Symbol) -> bool:
    return length.name in sc.sizes_of(node)
