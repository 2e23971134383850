"""The transfer functions, by operator: element of the result at given coordinates from elements of the operands."""

from __future__ import annotations

from collections.abc import Callable

from attnc.compiler.lift import (
    arithmetic,
    compare,
    convert,
    creation,
    divide,
    gather,
    joining,
    logic,
    scan,
    scatter,
    shape,
    slicing,
)
from attnc.compiler.lift.element import Coords, Element
from attnc.compiler.lift.scope import Scope
from attnc.ir.values import Op

RULES: dict[str, Callable[[Scope, Op, Coords], Element]] = {
    **creation.RULES,
    **convert.RULES,
    **arithmetic.RULES,
    **divide.RULES,
    **compare.RULES,
    **logic.RULES,
    **shape.RULES,
    **slicing.RULES,
    **joining.RULES,
    **gather.RULES,
    **scan.RULES,
    **scatter.RULES,
}
