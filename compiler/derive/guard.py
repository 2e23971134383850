"""What holds of every rule, checked around it: numbers that stand for places, sizes as numbers, orders, the encoder.

A rule says what is special about its operator. What would be wrong of any operator is refused here, so that a rule that
forgets it can't let it through.
"""

from __future__ import annotations

import dataclasses

from attnc.compiler.derive.known import ENCODER_AXIS, Kind, Known, Role
from attnc.compiler.derive.refusal import CACHE, LENGTH, MIXES, MIXES_BATCH, NO_RULE, NotDerivable
from attnc.compiler.derive.step import Step

PLACES: dict[str, frozenset[Role]] = {
    **dict.fromkeys(
        ("aten.clone", "aten.alias", "aten.detach", "aten.contiguous", "aten._to_copy", "aten.to"), frozenset(Role)
    ),
    **dict.fromkeys(("aten.ones_like", "aten.zeros_like", "aten.full_like", "aten.empty_like"), frozenset(Role)),
    **dict.fromkeys(("aten.view", "aten.reshape", "aten.unsqueeze", "aten.expand"), frozenset({Role.BATCH_INDEX})),
    "aten.floor_divide": frozenset({Role.ORDER}),
    "aten.cumsum": frozenset({Role.COUNT}),
    **dict.fromkeys(("aten.histc", "aten.bincount"), frozenset({Role.SORTED})),
    **dict.fromkeys(("aten._grouped_mm", "transformers.grouped_mm_fallback"), frozenset({Role.OFFSET})),
    "aten.index_put": frozenset({Role.ORDER, Role.ROW_NUMBER}),
    "aten.index": frozenset({Role.ORDER, Role.TOKEN_ORDER, Role.INVERSE, Role.SORTED}),
    "attn.attention": frozenset({Role.SUFFIX}),
}
"""Which numbers of places an operator may be given; its rule then looks at which operand has which."""

SHAPES = frozenset(
    f"aten.{name}"
    for name in (
        "view _unsafe_view reshape flatten unflatten expand repeat slice select zeros ones empty new_ones new_zeros "
        "new_empty arange narrow full new_full scalar_tensor"
    ).split()
) | {"attn.attention"}
"""Operators whose sizes are lengths and bounds, not numbers to compute with; their rules look at them."""


def check_operands(step: Step) -> None:
    """Raise NotDerivable for operands no operator may have together, or that this one may not have."""
    operands = step.tensors()
    allowed = PLACES.get(step.op.name, PLACES.get(step.op.name.rpartition(".")[0], frozenset()))
    strange = next((k.role for k in operands if k.role is not None and k.role not in allowed), None)
    if strange is not None:
        code = {Role.SUFFIX: LENGTH, Role.BATCH_INDEX: MIXES_BATCH, Role.PAST: CACHE}.get(strange, MIXES)
        raise step.refuse(code, f"{strange.value} is computed with")
    kinds = {known.kind for known in operands}
    if Kind.REQUEST in kinds and kinds & {Kind.POSITION, Kind.LENGTH, Kind.TOKEN} and step.op.name != "attn.attention":
        raise step.refuse(MIXES, "what comes from the encoder meets tokens or their positions outside attention")


def checked(step: Step, found: Known | tuple[Known, ...]) -> Known | tuple[Known, ...]:
    """What a rule found, with what holds of every result. Raises NotDerivable."""
    if isinstance(found, tuple):
        return tuple(_checked(step, known) for known in found)
    return _checked(step, found)


def _checked(step: Step, found: Known) -> Known:
    found = _with_sizes(step, in_order(step, found))
    encoded = any(atom[0] == ENCODER_AXIS for atom in found.symbolic)
    if encoded and found.kind not in (Kind.UNIFORM, Kind.REQUEST):
        raise step.refuse(MIXES, "values of tokens lie along the encoder's positions outside attention")
    return found


def _with_sizes(step: Step, found: Known) -> Known:
    """A size among the operands is a number to compute with, unless the operator takes it for a length."""
    if step.op.name in SHAPES or step.op.name.rpartition(".")[0] in SHAPES:
        return found
    kind = step.kind_of_sizes()
    if kind is Kind.UNIFORM or (kind, found.kind) == (Kind.REQUEST, Kind.REQUEST):
        return found
    if found.kind > Kind.LENGTH or found.role is not None:
        raise step.refuse(LENGTH, "a size (the total length or the batch) is a number in the computation")
    return dataclasses.replace(found, kind=max(kind, found.kind))


def in_order(step: Step, found: Known) -> Known:
    """Rows in an order by expert stay in that order; rows of two orders may not meet."""
    if not any(atom[0] == "R" for atom in found.symbolic) or found.source is not None:
        return found
    orders = {known.source for known in step.tensors() if any(a[0] == "R" for a in known.symbolic)} - {None}
    if len(orders) > 1:
        raise step.refuse(MIXES, "rows in the orders of two routers meet")
    return dataclasses.replace(found, source=next(iter(orders), None))


def failed(step: Step, error: Exception) -> NotDerivable:
    """The refusal where a rule could not cope with an op."""
    return step.refuse(NO_RULE, f"its rule does not know this form of it ({type(error).__name__}: {error})")
