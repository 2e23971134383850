"""The table of operators: which function is an op's ATen form, from which operator set on.

A form is called with the node and one argument for each input, in the order of the operator's specification; inputs
that are left out are None, trailing ones are not passed. It returns one value, or a tuple for several outputs. Inputs
are tensors, except those ``known`` names by position: these come as they are, so that constants and sizes can be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Form = Callable[..., Any]


@dataclass(frozen=True)
class Entry:
    """One form of an operator, for operator sets ``since`` to ``until`` (inclusive; None: to the latest)."""

    form: Form
    since: int
    until: int | None
    known: frozenset[int] | None
    """Inputs passed as they are; None: all of them."""
    stored: bool
    """Takes types that torch can only store (unsigned integers of 16 bits and more, float8)."""


_TABLE: dict[tuple[str, str], list[Entry]] = {}

ALL = None
"""For ``known``: every input comes as it is."""

MICROSOFT = "com.microsoft"


def op(
    *names: str,
    domain: str = "",
    since: int = 1,
    until: int | None = None,
    known: tuple[int, ...] | None = (),
    stored: bool = False,
) -> Callable[[Form], Form]:
    """Enter a function as the form of the operators ``names``."""

    def enter(form: Form) -> Form:
        positions = None if known is None else frozenset(known)
        for name in names:
            _TABLE.setdefault((domain, name), []).append(Entry(form, since, until, positions, stored))
        return form

    return enter


def entry_of(domain: str, name: str, version: int) -> Entry | None:
    """The entry of an operator in an operator set; None where it has no form."""
    for entry in _TABLE.get((domain, name), ()):
        if entry.since <= version and (entry.until is None or version <= entry.until):
            return entry
    return None


def operators() -> frozenset[tuple[str, str]]:
    """Every (domain, op) of the table."""
    return frozenset(_TABLE)
