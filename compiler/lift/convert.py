"""Casts between dtypes, and the ops that return their operand unchanged but for its dtype."""

from __future__ import annotations

from collections.abc import Callable

import sympy

from attnc.compiler.lift.element import Coords, Element, Leaf, Refused, constant, each, numeric, single
from attnc.compiler.lift.exact import fit, int_range
from attnc.compiler.lift.scope import Scope, source, tensor
from attnc.ir.types import DType
from attnc.ir.values import Op


def convert(scope: Scope, element: Element, old: DType, new: DType) -> Element:
    """An element of dtype ``old`` as the host casts it to ``new``. Raises Refused where the cast may not be exact.

    Constants round as ``new`` rounds. Anything else has to be provably unchanged; to bool is a comparison with 0.
    """
    if old is new:
        return element
    if new is DType.B1:
        return each(lambda leaf: nonzero(scope, leaf), element)
    if old is DType.B1:
        return numeric(element)
    if new.is_int and not _widens(old, new):
        return each(lambda leaf: single(_narrow(scope, leaf, new)), element)
    return each(lambda leaf: single(fit(leaf, new, scope.bounds)), element)


def nonzero(scope: Scope, leaf: Leaf) -> Element:
    """The truth value of a number."""
    value = constant(leaf)
    if value is not None:
        return sympy.true if value != 0 else sympy.false
    return scope.simplify(sympy.Ne(leaf, 0))


def _widens(old: DType, new: DType) -> bool:
    """Whether every number of integer dtype ``old`` is one of ``new``."""
    if not old.is_int:
        return False
    (low, high), (new_low, new_high) = int_range(old), int_range(new)
    return new_low <= low and high <= new_high


def _narrow(scope: Scope, leaf: Leaf, dtype: DType) -> Leaf:
    """An integer kept by a cast that could wrap. Raises Refused unless it is provably in range."""
    if isinstance(leaf, float):
        raise Refused(f"a cast of {leaf} to {dtype.value}")
    (low, high), (least, most) = scope.bounds(leaf), int_range(dtype)
    if low < least or high > most:
        raise Refused(f"{leaf} may not fit {dtype.value}")
    return leaf


def cast(scope: Scope, op: Op, at: Coords) -> Element:
    """The operand in the result's dtype."""
    operand = source(op)
    return convert(scope, scope.at(operand, at), tensor(operand).dtype, tensor(op.result).dtype)


RULES: dict[str, Callable[[Scope, Op, Coords], Element]] = {
    f"aten.{name}": cast
    for name in (
        "_to_copy.default",
        "to.dtype",
        "to.device",
        "to.dtype_layout",
        "to.other",
        "type_as.default",
        "clone.default",
        "alias.default",
        "detach.default",
        "detach_.default",
        "contiguous.default",
        "lift_fresh.default",
        "lift_fresh_copy.default",
    )
}
