"""What a result of a step depends on: positions, or places among the step's tokens."""

from __future__ import annotations

import sympy

from attnc.compiler.derive.guard import SHAPES
from attnc.compiler.derive.known import TOKEN_AXIS, Kind
from attnc.compiler.derive.past.formulas import Shift
from attnc.compiler.derive.refusal import LENGTH
from attnc.compiler.derive.step import Step
from attnc.ir.types import ScalarType
from attnc.ir.values import Value

_ALONG = {
    **dict.fromkeys(("slice", "select", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"), (1,)),
    "diff": (2,),
}
"""Where operators that would move positions along a dimension say which."""


def kind_of(step: Step, shift: Shift, kind: Kind) -> Kind:
    """What a rule says a result depends on, read for a step.

    ``POSITION``: a function of absolute positions; ``LENGTH``: one of places among the new tokens, or of their
    number. What a rule finds to be a function of position for itself counts from the step's first token.
    Raises NotDerivable where such places meet data of tokens.
    """
    operands = step.tensors()
    worst = step.kind(operands)
    numbers = step.sized_scalars() if not _takes_lengths(step) else []
    if any(known.kind is Kind.LENGTH for known in operands) or not all(_is_of_all(number, shift) for number in numbers):
        if kind is Kind.TOKEN:
            raise step.refuse(LENGTH, "the number of new or of earlier tokens meets data of tokens")
        return kind if kind is Kind.UNIFORM and not numbers else Kind.LENGTH
    if kind is Kind.REQUEST:
        return max(worst, Kind.POSITION)
    if kind in (Kind.POSITION, Kind.LENGTH):
        return Kind.POSITION if worst is Kind.POSITION is kind and not _moves(step) else Kind.LENGTH
    return max(kind, Kind.POSITION) if numbers else kind


def _takes_lengths(step: Step) -> bool:
    return step.op.name.rpartition(".")[0] in SHAPES


def _is_of_all(number: Value, shift: Shift) -> bool:
    """Whether a host number is one of all tokens: it doesn't tell new ones from earlier ones."""
    expr = number.type.expr if isinstance(number.type, ScalarType) else None
    return expr is not None and shift.agrees(sympy.sympify(expr), (), lambda name: ())


def _moves(step: Step) -> bool:
    """Whether an operator on positions goes along the new tokens."""
    name = step.op.name.split(".")[1]
    first = step.tensor(0)
    if name in ("tril", "triu"):
        places: tuple[int, ...] = (-2, -1)
    elif name in _ALONG:
        places = (step.dim(_ALONG[name][0], "dim", len(first.dims), -1 if name == "diff" else 0),)
    else:
        return False
    return any(TOKEN_AXIS in first.dims[d] for d in places)
