"""How an attention reads a side operand that has an element for each query and key."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import sympy

from attnc.compiler.passes.place import NotRelative, Place
from attnc.ir import index as ix
from attnc.ir import score as sc
from attnc.ir.attention import KEY, QUERY, AttentionSpec
from attnc.ir.types import Dim, as_dim


@dataclass(frozen=True)
class Read:
    """One load: row ``row`` and column ``column`` of a matrix [rows, keys] that stands at ``place``."""

    load: sc.Node
    place: Place
    row: sympy.Expr
    column: sympy.Expr
    rows: Dim
    keys: Dim

    def of_table(self, entry: sympy.Expr, order: tuple[int, ...]) -> sc.Node:
        """The load of a table at ``entry``; its dimensions are those of the side operand in another order."""
        name, indices = self.load.value
        at = [*indices]
        at[self.place.query] = sympy.Integer(0)
        at[self.place.key] = entry
        return sc.load(name, tuple(at[d] for d in order), self.load.dtype)


def loads(spec: AttentionSpec, name: str) -> list[sc.Node]:
    """The load nodes of a side operand in every formula."""
    roots = [root for root in (spec.score, spec.visible, spec.weight, spec.sink) if root is not None]
    found = (node for root in roots for node in sc.walk(root) if node.op == "load" and node.value[0] == name)
    return list(dict.fromkeys(found))


def reads_pairs(load: sc.Node) -> bool:
    """Whether one index of a load names the query and the key."""
    return any({QUERY, KEY} <= ix.axes_of(index) for index in load.value[1])


def reads(loads: list[sc.Node], shape: tuple[Dim, ...], keys: Dim) -> list[Read]:
    """The loads of a side operand of this shape, ``keys`` keys long. Raises NotRelative where they aren't alike."""
    found = [_read(load, shape, keys) for load in loads]
    if len({(read.place, read.rows, read.keys) for read in found}) != 1:
        raise NotRelative("it is read in two ways" if found else "a condition reads it")
    return found


def substituted(spec: AttentionSpec, loads: dict[sc.Node, sc.Node]) -> AttentionSpec:
    """The spec with loads replaced in every formula."""
    return dataclasses.replace(
        spec,
        score=sc.substitute(spec.score, loads),
        visible=sc.substitute(spec.visible, loads),
        weight=None if spec.weight is None else sc.substitute(spec.weight, loads),
        sink=None if spec.sink is None else sc.substitute(spec.sink, loads),
    )


def _read(load: sc.Node, shape: tuple[Dim, ...], keys: Dim) -> Read:
    key, indices = ix.axis(KEY), load.value[1]
    of_key = [d for d, index in enumerate(indices) if index.has(key)]
    of_query = [d for d, index in enumerate(indices) if QUERY in ix.axes_of(index)]
    if len(of_key) != 1 or len(of_query) != 1:
        raise NotRelative("it is read at other places than the query and key position")
    place = Place(of_query[0], of_key[0])
    if not place.flat:
        if indices[place.key] != key:
            raise NotRelative("it is read at other places than the query and key position")
        return Read(load, place, indices[place.query], key, shape[place.query], shape[place.key])
    length = sympy.sympify(keys)
    row = sympy.expand((indices[place.key] - key) / length)
    rows = sympy.expand(sympy.sympify(shape[place.key]) / length)
    if row.has(key) or row.is_integer is not True or rows.is_integer is not True:
        raise NotRelative("it is read at other places than the query and key position")
    return Read(load, place, row, key, as_dim(rows), keys)
