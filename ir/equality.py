"""Structural equality of graphs: same names, types, arguments, attributes, locations and small constants.

``Op.meta`` and payloads that the text form doesn't hold are not compared. Contiguous strides equal unknown ones,
``nan`` equals ``nan``, ``0.0`` differs from ``-0.0`` and ``1`` from ``1.0`` and ``True``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from attnc.ir.attention import AttentionSpec
from attnc.ir.constants import is_inline
from attnc.ir.graph import Graph
from attnc.ir.typetext import show_type
from attnc.ir.values import Literal, Op, Value


def difference(x: Graph, y: Graph) -> str | None:
    """Where two graphs differ first, in words; None where they are equal. Raises PrintError for a type with no text."""
    return next(_differences(x, y), None)


def equal(x: Graph, y: Graph) -> bool:
    """Whether :func:`difference` finds none."""
    return difference(x, y) is None


def _differences(x: Graph, y: Graph) -> Iterator[str]:
    pairs: tuple[tuple[str, Any, Any], ...] = (
        ("names", x.name, y.name),
        ("sizes", list(x.sizes.items()), list(y.sizes.items())),
        ("inputs", list(map(_value, x.inputs)), list(map(_value, y.inputs))),
        ("constants", _constants(x), _constants(y)),
    )
    yield from (f"{what} of @{x.name}: {a!r} and {b!r}" for what, a, b in pairs if a != b)
    for index, (first, second) in enumerate(zip_longest(x.ops, y.ops)):
        yield from _op_differences(index, first, second)
    if _arg(x.outputs) != _arg(y.outputs):
        yield f"outputs of @{x.name}: {_arg(x.outputs)!r} and {_arg(y.outputs)!r}"


def _op_differences(index: int, x: Op | None, y: Op | None) -> Iterator[str]:
    if x is None or y is None:
        yield f"op {index}: {(x or y).name} is in one graph only"  # type: ignore[union-attr]
        return
    pairs: tuple[tuple[str, Any, Any], ...] = (
        ("names", x.name, y.name),
        ("results", list(map(_value, x.results)), list(map(_value, y.results))),
        ("arguments", _arg(x.args), _arg(y.args)),
        ("keywords", _mapping(x.kwargs), _mapping(y.kwargs)),
        ("attributes", _mapping(x.attrs), _mapping(y.attrs)),
        ("locations", x.loc, y.loc),
        ("regions", list(x.regions), list(y.regions)),
    )
    yield from (f"op {index}, {what}: {a!r} and {b!r}" for what, a, b in pairs if a != b)
    for name in x.regions.keys() & y.regions.keys():
        yield from _differences(x.regions[name], y.regions[name])


def _value(value: Value) -> tuple[str, str]:
    """Types are compared as text, which leaves out contiguous strides and writes equal dimensions one way."""
    return value.name, show_type(value.type)


def _mapping(entries: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Order counts: it is the order of the text."""
    return [(name, _arg(value)) for name, value in entries.items()]


def _arg(arg: Any) -> Any:
    """An argument as plain data in which equality is identity of meaning."""
    match arg:
        case Value():
            return f"%{arg.name}"
        case tuple():
            return ("list", *map(_arg, arg))
        case Literal() | AttentionSpec():
            return arg
    return type(arg).__name__, repr(arg)


def _constants(graph: Graph) -> list[tuple[str, Any]]:
    return [(name, _payload(payload) if is_inline(payload) else None) for name, payload in graph.constants.items()]


def _payload(array: Any) -> tuple[Any, ...]:
    return str(array.dtype), array.shape, tuple(map(repr, array.reshape(-1).tolist()))
