"""Small graphs over known values, analysed and then run in several *worlds*: batches of requests of some lengths.

A claim of the analysis is checked against numbers by collecting every element of a value, from every world, under what
the claim says it may depend on. Two elements under one key must be equal: a token's value under its own position, token
and literal places; a position's under its positions; a constant's under its literal places alone.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnc.compiler.derive.analysis import _visit
from attnc.compiler.derive.axes import Axes
from attnc.compiler.derive.known import Dims, Kind, Known, Role
from attnc.compiler.derive.refusal import NotDerivable
from attnc.compiler.derive.step import Fact
from attnc.compiler.interpreter import Interpreter
from attnc.ir import parse_graph, verify
from attnc.ir.graph import Graph
from attnc.ir.types import Atom, size
from attnc.ir.values import Value

VOCABULARY = 6
REQUESTS = ((1, 4, 4, 0, 5, 2, 3), (3, 3, 1, 5, 0, 2, 4), (1, 4, 2, 4, 3, 5, 0), (0, 1, 4, 0, 5, 1, 2))
"""Few tokens, so that the same one, and the same few in a row, stand at the same place of several requests."""


@dataclass(frozen=True)
class World:
    """Some requests, cut to one length."""

    requests: tuple[int, ...]
    tokens: int
    encoded: int = 6
    """The length of the encoder's input."""

    @property
    def batch(self) -> int:
        return len(self.requests)

    @property
    def ids(self) -> Tensor:
        """i64[B, S]."""
        return torch.tensor([REQUESTS[r][: self.tokens] for r in self.requests])

    def length(self, atom: Atom) -> int:
        """The length of an atom."""
        if isinstance(atom, int):
            return atom
        if atom[0] == "R":
            return self.batch * self.tokens * int(atom[1:])
        return {"B": self.batch, "S": self.tokens, "D": 2 * self.tokens - 1, "E": self.encoded}[atom]


WORLDS = (World((0, 1), 5), World((2, 1, 0), 7), World((3, 1, 2, 0), 5, encoded=4), World((1,), 5), World((3, 1, 0), 3))
ALONE = World((1,), 1)
"""One token of one request: what a step of a generator brings."""


def _table(*shape: int) -> Tensor:
    """Numbers unlike each other, between −1 and 1."""
    return torch.sin(1.7 * torch.arange(torch.Size(shape).numel(), dtype=torch.float64) + 0.3).reshape(shape).float()


EMBEDDING = _table(VOCABULARY, 8)


def _tokens(world: World, features: int) -> Tensor:
    """f32[B, S, features] of token and position."""
    return EMBEDDING[world.ids][..., :features] + 0.25 * _table(64, 8)[: world.tokens, :features]


def _heads(world: World) -> Tensor:
    return torch.stack([_tokens(world, 4) * (1 + h) for h in range(3)], dim=1)


Maker = Callable[[World], Any]
_T, _P, _U, _L, _R = Kind.TOKEN, Kind.POSITION, Kind.UNIFORM, Kind.LENGTH, Kind.REQUEST
INPUTS: dict[str, tuple[str, Kind, str, Maker]] = {
    "ids": ("i64[B, S]", _T, "B S", lambda w: w.ids),
    "x": ("f32[B, S, 4]", _T, "B S 4", lambda w: _tokens(w, 4)),
    "x1": ("f32[B, S, 1]", _T, "B S 1", lambda w: _tokens(w, 1)),
    "x8": ("f32[B, S, 8]", _T, "B S 8", lambda w: _tokens(w, 8)),
    "h": ("f32[B, 3, S, 4]", _T, "B 3 S 4", _heads),
    "flat": ("f32[B*S, 4]", _T, "B.S 4", lambda w: _tokens(w, 4).flatten(0, 1)),
    "turned": ("f32[S, B, 4]", _T, "S B 4", lambda w: _tokens(w, 4).transpose(0, 1).contiguous()),
    "square": ("f32[B, S, 4, 4]", _T, "B S 4 4", lambda w: _tokens(w, 4)[..., None] * _table(4)),
    "hot": ("b1[B, S, 4]", _T, "B S 4", lambda w: _tokens(w, 4) > 0),
    "pair": ("c64[B, S, 2]", _T, "B S 2", lambda w: torch.view_as_complex(_tokens(w, 4).unflatten(-1, (2, 2)))),
    "pick": ("i64[B, S, 2]", _T, "B S 2", lambda w: torch.stack([w.ids % 4, (w.ids + 1) % 4], -1)),
    "experts": ("i64[B*S*2]", _T, "B.S.2", lambda w: torch.stack([w.ids % 4, (w.ids + 1) % 3], -1).flatten()),
    "other": ("i64[B*S*2]", _T, "B.S.2", lambda w: torch.stack([w.ids // 2, (w.ids + 2) % 4], -1).flatten()),
    "pos": ("i64[S]", _P, "S", lambda w: torch.arange(w.tokens)),
    "posf": ("f32[S]", _P, "S", lambda w: _table(64)[: w.tokens]),
    "line": ("f32[S, 1]", _P, "S 1", lambda w: _table(64)[: w.tokens, None]),
    "ptab": ("f32[S, 4]", _P, "S 4", lambda w: _table(64, 4)[: w.tokens]),
    "own": ("f32[B, S]", _P, "B S", lambda w: _table(64)[: w.tokens].expand(w.batch, -1).contiguous()),
    "rows": ("f32[16, S]", _P, "16 S", lambda w: _table(64, 16)[: w.tokens].T.contiguous()),
    "grid": ("f32[S, S]", _P, "S S", lambda w: _table(16, 16)[: w.tokens, : w.tokens].contiguous()),
    "far": ("i64[2*S - 1]", _P, "D", lambda w: torch.arange(1 - w.tokens, w.tokens)),
    "fars": ("f32[2*S - 1, 3]", _P, "D 3", lambda w: _table(63, 3)[32 - w.tokens : 31 + w.tokens]),
    "late": ("f32[S]", _L, "S", lambda w: torch.arange(w.tokens) / w.tokens),
    "total": ("f32[1]", _L, "1", lambda w: torch.tensor([float(w.tokens)])),
    "weight": ("f32[4, 4]", _U, "4 4", lambda w: _table(4, 4)),
    "wide": ("f32[8, 4]", _U, "8 4", lambda w: _table(8, 4)),
    "vec": ("f32[4]", _U, "4", lambda w: _table(4)),
    "one": ("f32[1]", _U, "1", lambda w: _table(1)),
    "table": ("f32[16, 4]", _U, "16 4", lambda w: _table(16, 4)),
    "long": ("f32[64]", _U, "64", lambda w: _table(64)),
    "many": ("f32[4, 4, 4]", _U, "4 4 4", lambda w: _table(4, 4, 4)),
    "two": ("i64[2]", _U, "2", lambda w: torch.tensor([2, 1])),
    "zero": ("i64[1]", _U, "1", lambda w: torch.zeros(1, dtype=torch.int64)),
    "ones": ("f32[B, S]", _U, "B S", lambda w: torch.ones(w.batch, w.tokens)),
    "ones4": ("f32[B, S, 4]", _U, "B S 4", lambda w: torch.ones(w.batch, w.tokens, 4)),
    "encoded": (
        "f32[B, E, 4]",
        _R,
        "B E 4",
        lambda w: torch.stack([_table(w.encoded, 4) * REQUESTS[r][0] + REQUESTS[r][1] for r in w.requests]),
    ),
}
"""Inputs of cases: type, kind, axes, content."""
SIZES: dict[str, tuple[str, Maker]] = {
    "s": ("S", lambda w: w.tokens),
    "b": ("B", lambda w: w.batch),
    "e": ("E", lambda w: w.encoded),
}


@dataclass(frozen=True)
class Case:
    """A graph whose inputs are named above; what is asked is its value ``%y``."""

    graph: Graph
    axes: Axes
    facts: dict[Value, Fact]
    asked: Value

    @property
    def found(self) -> Fact:
        """What is known of ``%y``, or why nothing is."""
        return self.facts[self.asked]

    @property
    def known(self) -> Known:
        """What is known of ``%y``. Raises AssertionError where it is refused."""
        assert isinstance(self.found, Known), str(self.found)
        return self.found

    def run(self, world: World) -> Any:
        """The numbers of ``%y``."""
        made = {name: maker for name, (*_, maker) in INPUTS.items()} | {n: maker for n, (_, maker) in SIZES.items()}
        return Interpreter(self.graph).run([made[value.name](world) for value in self.graph.inputs])[0]


def case(lines: str) -> Case:
    """Read the ops of a case, verify them and apply the rules."""
    graph = parse_graph(_text(lines))
    verify(graph)
    axes = Axes(size("B"), size("S"), size("E"), longest=64, extents={"E": size("E")})
    facts: dict[Value, Fact] = {value: _given(value.name) for value in graph.inputs}
    for op in graph.ops:
        _visit(op, axes, facts)
    return Case(graph, axes, facts, graph.output_values()[0])


def _text(lines: str) -> str:
    defined = {n for head in re.findall(r"^\s*(%[^=]*) = ", lines, re.M) for n in re.findall(r"%(\w+):", head)}
    used = [n for n in dict.fromkeys(re.findall(r"%(\w+)", lines)) if n not in defined]
    inputs = [f"%{n}: " + (INPUTS[n][0] if n in INPUTS else f"int<{SIZES[n][0]}>") for n in used]
    sizes = "sizes(B in [1, 64], S in [1, 64], E in [1, 64])"
    return f"graph @case({', '.join(inputs)}) {sizes} {{\n{lines}\n  return %y\n}}\n"


def _given(name: str) -> Known:
    if name in SIZES:
        return Known(Kind.UNIFORM, ())
    _, kind, dims, _ = INPUTS[name]
    return Known(kind, axes_of(dims))


def axes_of(text: str) -> Dims:
    """Dimensions in short: ``B.S 4 1`` is ``((B, S), (4,), ())``."""
    return tuple(
        tuple(int(a) if a.isdigit() else a for a in dim.split(".")) if dim != "1" else () for dim in text.split()
    )


def claim(known: Known) -> str:
    """A claim in short: ``TOKEN B S 4``, with its role where it has one."""
    dims = " ".join(".".join(map(str, dim)) or "1" for dim in known.dims)
    return f"{known.kind.name} {dims}".strip() + (f" {known.role.name}" if known.role else "")


def check(found: Case, worlds: Sequence[World] = WORLDS, reach: int | None = 1) -> None:
    """Raises AssertionError where what the analysis says of ``%y`` is not so in numbers; a refusal is always right.

    ``reach``: how many tokens a token's value may depend on, its own the last; None: all before it.
    """
    claims = found.found
    if isinstance(claims, NotDerivable):
        return
    seen: dict[tuple[Any, ...], Any] = {}
    for world in worlds:
        got = found.run(world)
        parts = zip(claims, got, strict=True) if isinstance(claims, tuple) else [(claims, got)]
        for number, (known, tensor) in enumerate(parts):
            for key, element in elements(known, tensor, world, reach):
                before = seen.setdefault((number, *key), element)
                same = before == element or abs(before - element) < 1e-4 or (before != before and element != element)
                assert same, f"{claim(known)}: at {key} it is {element} in {world}, and {before} elsewhere"


def elements(known: Known, tensor: Tensor, world: World, reach: int | None) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every element under what it may depend on. Raises AssertionError where the axes don't fit the shape."""
    lengths = [tuple(map(world.length, dim)) for dim in known.dims]
    shape = tuple(torch.Size(dim).numel() for dim in lengths)
    assert tuple(tensor.shape) == shape, f"{claim(known)} in {world}: the shape is {list(tensor.shape)}"
    atoms = [atom for dim in known.dims for atom in dim]
    values = tensor.reshape(-1).tolist()
    for place, element in zip(itertools.product(*(range(n) for dim in lengths for n in dim)), values, strict=True):
        yield _key(known, atoms, place, world, element, reach), element


def _key(
    known: Known, atoms: list[Atom], place: tuple[int, ...], world: World, element: Any, reach: int | None
) -> tuple[Any, ...]:
    at = list(zip(atoms, place, strict=True))
    fixed = tuple(i for atom, i in at if isinstance(atom, int))
    tokens, requests = ([i for atom, i in at if atom == name] for name in ("S", "B"))
    match known.kind:
        case Kind.UNIFORM if known.role is Role.BATCH_INDEX:
            assert element == requests[0], f"the number of request {requests[0]} is {element}"
            return (requests[0],)
        case Kind.UNIFORM if known.role is Role.ROW_NUMBER:
            return tuple(i for _, i in at)
        case Kind.UNIFORM:
            return fixed
        case Kind.POSITION:
            return (*fixed, *tokens, *(i - world.tokens for atom, i in at if atom == "D"))
        case Kind.LENGTH:
            return (world.batch, world.tokens, *place)
        case Kind.REQUEST:
            encoder = [i for atom, i in at if atom == "E"]
            return (world.encoded, *fixed, *encoder, world.requests[requests[0]])
    routed = any(isinstance(atom, str) and atom[0] == "R" for atom in atoms)
    if known.role is not None or routed:
        return (world, place)
    assert len(tokens) == len(requests) == 1, f"{claim(known)} is no value of one token"
    fixed += tuple(i for atom, i in at if atom == "E")
    first = 0 if reach is None else max(0, tokens[0] + 1 - reach)
    return (*fixed, tokens[0], REQUESTS[world.requests[requests[0]]][first : tokens[0] + 1])
