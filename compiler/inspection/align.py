"""Two graphs matched op by op, whatever their values are called.

Ops are aligned in order: first those equal in all but value names, in the same module; in what is left, those equal
wherever they stand; in what is still left, those of the same name and result types, which then differ in something
else. A matched pair makes its results one value, so operands are compared by what they stand for, not by name.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from attnc.ir.attention import AttentionSpec
from attnc.ir.graph import Graph
from attnc.ir.printer import print_graph
from attnc.ir.spectext import show_spec
from attnc.ir.typetext import show_type
from attnc.ir.values import Arg, Op, Value


@dataclass(frozen=True)
class Pair:
    """An op of one graph, its partner in the other, or both."""

    left: Op | None
    right: Op | None
    same: bool = True
    """Whether a matched pair is equal but for names and operands."""


def align(left: Graph, right: Graph) -> list[Pair]:
    """Every op of both graphs once, in an order that both agree on."""
    return list(_aligned(left.ops, right.ops, (_in_module, content, _kind)))


def _aligned(left: Sequence[Op], right: Sequence[Op], keys: tuple[Callable[[Op], Hashable], ...]) -> Iterator[Pair]:
    if not keys or not left or not right:
        yield from (Pair(op, None) for op in left)
        yield from (Pair(None, op) for op in right)
        return
    numbers: dict[Hashable, int] = {}
    before, after = ([numbers.setdefault(keys[0](op), len(numbers)) for op in ops] for ops in (left, right))
    for tag, i, j, m, n in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            pairs = zip(left[i:j], right[m:n], strict=True)
            yield from (Pair(x, y, keys[0] is not _kind or content(x) == content(y)) for x, y in pairs)
        else:
            yield from _aligned(left[i:j], right[m:n], keys[1:])


def content(op: Op) -> Hashable:
    """All of an op but the names of values and where it comes from."""
    return (
        op.name,
        tuple(map(_plain, op.args)),
        tuple((name, _plain(arg)) for name, arg in op.kwargs.items()),
        tuple((name, attribute(value)) for name, value in op.attrs.items()),
        tuple((name, print_graph(region, locations=False)) for name, region in op.regions.items()),
        _types(op),
    )


def attribute(value: object) -> Hashable:
    """An attribute as text, an attention's as its lines."""
    return tuple(show_spec(value)) if isinstance(value, AttentionSpec) else repr(value)


def _in_module(op: Op) -> Hashable:
    return op.loc.module, content(op)


def _kind(op: Op) -> Hashable:
    return op.name, _types(op)


def _types(op: Op) -> tuple[str, ...]:
    return tuple(show_type(value.type) for value in op.results)


def _plain(arg: Arg) -> Hashable:
    if isinstance(arg, Value):
        return "%"
    if isinstance(arg, tuple):
        return ("list", *map(_plain, arg))
    return type(arg).__name__, repr(arg)
