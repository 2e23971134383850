"""One rule for each operator: what its result depends on and which axes it has. Without a rule it is refused."""

from __future__ import annotations

from attnc.compiler.derive.rules import attention, contract, create, gather, layout, pointwise, reduce, route, selecting
from attnc.compiler.derive.step import Rule

FAMILIES = (pointwise, create, layout, selecting, reduce, contract, gather, route, attention)

RULES: dict[str, Rule] = {name: rule for family in FAMILIES for name, rule in family.RULES.items()}
"""Op name without its overload → rule; ``max.other`` and the like by their whole name."""


def rule_of(name: str) -> Rule | None:
    """The rule of an op, by its whole name or without the overload."""
    return RULES.get(name) or RULES.get(name.rpartition(".")[0])
