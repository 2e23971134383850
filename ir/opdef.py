"""Op declarations: each op is declared once, and the printer, parser, verifier and docs/ir.md read it from here.

Dialects are closed or open. A closed dialect (``attn``, ``ir``, ``py``) holds the declared ops and no other. Every
other prefix is open: any op is accepted and checked for structure only, because its meaning is its own library's.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from attnc.ir.types import Type
from attnc.ir.values import Arg, Op


class Trait(enum.Enum):
    """What a rewrite may assume of an op."""

    PURE = "pure"
    """Results depend on operands alone: may be moved, merged with an equal op, erased when unread."""
    EFFECT = "effect"
    """Changes or reads something outside its operands: keeps its place and is never erased."""
    RANDOM = "random"
    """Draws random numbers: never merged, and kept when unread, because it advances the generator."""


@dataclass(frozen=True)
class Operand:
    """A positional argument.

    Kinds: ``tensor``, ``tensors`` (a list of them), ``scalar`` (a number or a host scalar), ``list`` or ``any``.
    """

    name: str
    kind: str
    doc: str
    optional: bool = False


@dataclass(frozen=True)
class Attribute:
    """A typed constant of an op. ``type`` is checked with isinstance."""

    name: str
    type: type
    doc: str
    optional: bool = False


@dataclass(frozen=True)
class Result:
    """A result; an optional one is there or not as the attributes say."""

    name: str
    doc: str
    optional: bool = False


Verify = Callable[[Op], Iterable[str]]
"""What is wrong with an op beyond its signature, a sentence each."""
Infer = Callable[[tuple[Arg, ...], Mapping[str, Any]], tuple[Type, ...]]
"""Result types from arguments and attributes. Raises ValueError where there are none."""


@dataclass(frozen=True)
class OpDef:
    """One op. ``verify`` runs only on ops whose operands, attributes and results fit the signature."""

    name: str
    summary: str
    operands: tuple[Operand, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    results: tuple[Result, ...] = ()
    traits: frozenset[Trait] = frozenset({Trait.PURE})
    verify: Verify | None = None
    infer: Infer | None = None
    doc: str = ""

    def attribute(self, name: str) -> Attribute | None:
        return next((a for a in self.attributes if a.name == name), None)


@dataclass(frozen=True)
class Registry:
    """Declared ops by name, and the prefixes that hold no others."""

    ops: Mapping[str, OpDef]
    closed: frozenset[str]

    @staticmethod
    def of(definitions: Iterable[OpDef], closed: Iterable[str]) -> Registry:
        """Raises ValueError where a name is declared twice."""
        ops: dict[str, OpDef] = {}
        for definition in definitions:
            if definition.name in ops:
                raise ValueError(f"op {definition.name} is declared twice")
            ops[definition.name] = definition
        return Registry(ops, frozenset(closed))

    def get(self, name: str) -> OpDef | None:
        return self.ops.get(name)

    def is_closed(self, dialect: str) -> bool:
        return dialect in self.closed
