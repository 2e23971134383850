"""Writes the op tables of docs/ir.md from the declarations: ``python -m attnc.ir.opdoc docs/ir.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from attnc.ir.opdef import OpDef
from attnc.ir.ops import REGISTRY

BEGIN, END = "<!-- ops: written by attnc.ir.opdoc -->", "<!-- end of ops -->"


def op_tables() -> str:
    """The tables as Markdown: ops with attributes in full, the rest a row each."""
    full = [op for op in REGISTRY.ops.values() if op.attributes]
    short = [op for op in REGISTRY.ops.values() if not op.attributes]
    rows = [(f"`{_call(op)}`", op.summary, _traits(op)) for op in short]
    return "\n\n".join([*map(_section, full), "### Ops without attributes", _table(("op", "does", "traits"), rows)])


def _section(op: OpDef) -> str:
    rows = [
        *((f"`{o.name}`", f"operand, {o.kind}", o.doc) for o in op.operands),
        *((f"`{a.name}`", f"attribute, {a.type.__name__}", a.doc) for a in op.attributes),
        *((f"`{r.name}`", "result, optional" if r.optional else "result", r.doc) for r in op.results),
    ]
    parts = [f"### `{op.name}`", f"{op.summary[0].upper()}{op.summary[1:]}. Traits: {_traits(op)}.", op.doc]
    return "\n\n".join([*filter(None, parts), _table(("name", "is", "meaning"), rows)])


def _call(op: OpDef) -> str:
    return f"{op.name}({', '.join(f'{o.name}?' if o.optional else o.name for o in op.operands)})"


def _traits(op: OpDef) -> str:
    return ", ".join(sorted(trait.value for trait in op.traits))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def updated(document: str) -> str:
    """The document with fresh tables between its two marker lines. Raises ValueError where a marker is missing."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document lacks the line {BEGIN if not begin else END}")
    return f"{before}{BEGIN}\n\n{op_tables()}\n\n{END}{after}"


def main(arguments: list[str]) -> None:
    """Rewrite the document named by the first argument."""
    path = Path(arguments[0])
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
