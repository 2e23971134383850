"""A mask as a picture: which tiles of (query, key) a kernel skips, which it masks, which it takes whole.

A picture is a grid of cells. Up to :data:`EXACT` queries and keys a cell is one pair; beyond, it is one tile, or a
square of tiles where there are more than :data:`CELLS` of them. Conditions that load values (padding) are not known
before a call: they count as true, and no tile counts as full.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy

from attnc.compiler.hints import size_hints, user_names
from attnc.compiler.planning.plan import Formulas, axis_lengths, op_formulas
from attnc.compiler.planning.target import DEFAULT
from attnc.ir import index, score
from attnc.ir.graph import Graph
from attnc.ir.index_eval import Array, Env, evaluate
from attnc.ir.index_terms import axis
from attnc.ir.mask import MaskSet
from attnc.ir.mask_count import tile_counts
from attnc.ir.types import Dim, DType
from attnc.ir.values import Op, walk_values

EXACT = 128
"""Up to this many queries and keys a picture shows single pairs."""
CELLS = 128
"""Most cells along one side."""
PANELS = 4
"""Most panels of a mask that differs from head to head."""
ASSUMED = 256
"""The value of a size whose examples nobody gave."""

SKIP, HIDDEN, PARTIAL, FULL = range(4)
"""What a cell is: in a tile without a visible pair; a hidden pair of another tile; such a tile, or a visible pair of
one; in a tile that hides nothing."""


@dataclass(frozen=True)
class Panel:
    """The mask at one point of the outer axes: ``title`` names the point, ``rows`` hold a digit for each cell."""

    title: str
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Picture:
    """One mask at numeric sizes."""

    lengths: tuple[int, int]
    """Queries, keys."""
    block: tuple[int, int]
    """Queries and keys of a tile."""
    cell: tuple[int, int]
    """Queries and keys of a cell."""
    sizes: tuple[tuple[str, int], ...]
    """The named sizes the picture was made for."""
    loaded: str
    """The conditions that hang on loaded values, as a formula; empty where there are none."""
    panels: tuple[Panel, ...]

    def caption(self) -> str:
        """One line: lengths, tiles, what a cell is, what the picture can't know."""
        q, k = self.lengths
        tile = f"{self.block[0]}×{self.block[1]}"
        cell = "pair" if self.cell == (1, 1) else "tile" if self.cell == self.block else self._many()
        loaded = f"; where coloured, {self.loaded} decides" if self.loaded else ""
        return f"{q} queries × {k} keys, tiles of {tile}, a cell is one {cell}{loaded}"

    def _many(self) -> str:
        rows, columns = (c // b for c, b in zip(self.cell, self.block, strict=True))
        return f"square of {rows}×{columns} tiles"

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Picture:
        """The inverse of :func:`dataclasses.asdict`, from JSON's lists."""
        panels = tuple(Panel(p["title"], tuple(p["rows"])) for p in data["panels"])
        sizes = tuple((str(name), int(value)) for name, value in data["sizes"])
        pairs = {key: (data[key][0], data[key][1]) for key in ("lengths", "block", "cell")}
        return Picture(**pairs, sizes=sizes, loaded=data["loaded"], panels=panels)


def numeric_sizes(graph: Graph, hints: Mapping[str, int]) -> dict[str, int]:
    """A value for each named size: the one in the example inputs, else :data:`ASSUMED` within the size's bounds."""
    return {
        name: hints.get(name, max(bounds.lo, ASSUMED if bounds.hi is None else min(ASSUMED, bounds.hi)))
        for name, bounds in graph.sizes.items()
    }


class Album:
    """The distinct pictures of one graph: layers with equal masks share one."""

    def __init__(self, sizes: Mapping[str, int], user_names: Mapping[str, str]) -> None:
        """``sizes``: numbers of the named sizes; ``user_names``: graph inputs by the names their user knows."""
        self.sizes, self.user_names = dict(sizes), user_names
        self.pictures: list[Picture] = []
        self._known: dict[Any, int] = {}

    def add(self, op: Op) -> int | None:
        """The number of the picture of an ``attn.attention``; None where a size has no value or a term no bounds."""
        try:
            return self._add(op)
        except (KeyError, ValueError):  # a picture is a help, and no reason to fail a compile
            return None

    def _add(self, op: Op) -> int:
        lengths = axis_lengths(op)
        parts = op_formulas(op, op.meta.get("kernel_target", DEFAULT))
        names = [self.user_names.get(side.name, side.name) for side in walk_values(op.args[3])]
        key = (parts.mask_set, parts.block_m, parts.block_n, lengths["q"], lengths["k"], *names)
        if key not in self._known:
            picture = draw(parts, lengths, self.sizes, {f"t{i}": name for i, name in enumerate(names)})
            if picture not in self.pictures:
                self.pictures.append(picture)
            self._known[key] = self.pictures.index(picture)
        return self._known[key]


def album_of(graph: Graph) -> dict[int, Picture]:
    """Site of the report → its picture, for every attention of a compiled graph that can be drawn."""
    album = Album(numeric_sizes(graph, size_hints(graph)), user_names(graph))
    numbers = {op.meta["site"]: album.add(op) for op in graph.ops if op.name == "attn.attention" and "site" in op.meta}
    return {site: album.pictures[number] for site, number in numbers.items() if number is not None}


def draw(parts: Formulas, lengths: Mapping[str, Dim], sizes: Mapping[str, int], names: Mapping[str, str]) -> Picture:
    """The picture of a mask whose axes have these lengths; ``names``: side operands by the names to show.

    Raises KeyError for a size without value.
    """
    queries, keys = (number(lengths[name], sizes) for name in ("q", "k"))
    block = (parts.block_m, parts.block_n)
    exact = max(queries, keys) <= EXACT
    step = [1 if exact else b * max(1, math.ceil(n / b / CELLS)) for n, b in zip((queries, keys), block, strict=True)]
    mask = parts.mask_set
    outer = {name: number(lengths[name], sizes) for name in mask.outer_axes}
    panels = []
    for point in _points(outer):
        here = mask.affine_expr.xreplace({axis(name): sympy.Integer(i) for name, i in point.items()})
        tiles = _tiles(here, sizes, (queries, keys), block, bool(mask.residual))
        cells = _pairs(here, sizes, tiles, (queries, keys), block) if exact else _pooled(tiles, step, block)
        title = ", ".join(f"{name} = {i}" for name, i in point.items())
        panels.append(Panel(title, tuple("".join(map(str, row)) for row in cells.tolist())))
    known = tuple(sorted(sizes.items()))
    return Picture((queries, keys), block, (step[0], step[1]), known, _loaded(mask, names), tuple(panels))


def _loaded(mask: MaskSet, names: Mapping[str, str]) -> str:
    """The conditions that hang on loaded values, under the names of their operands."""
    condition = score.index(sympy.And(*mask.residual), DType.B1)
    return index.show(score.rename_loads(condition, names).value) if mask.residual else ""


def number(dim: Dim, sizes: Mapping[str, int]) -> int:
    """A dimension at numeric sizes. Raises KeyError for a size without value."""
    return dim if isinstance(dim, int) else int(evaluate(dim, Env(sizes=sizes)))


def _points(outer: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """At most :data:`PANELS` points of the outer axes, the first and the last among them."""
    total = math.prod(outer.values())
    chosen = set(np.linspace(0, total - 1, min(PANELS, total)).round().astype(int).tolist())
    for place, point in enumerate(itertools.product(*(range(n) for n in outer.values()))):
        if place in chosen:
            yield dict(zip(outer, point, strict=True))


def _tiles(
    expr: sympy.Basic, sizes: Mapping[str, int], lengths: tuple[int, int], block: tuple[int, int], loads: bool
) -> Array:
    """The class of each tile, ``[query tiles, key tiles]``."""
    slabs = []
    for counts, areas in tile_counts(expr, sizes, *lengths, *block, {}):
        whole = (counts == areas) & (not loads)
        slabs.append(np.where(counts == 0, SKIP, np.where(whole, FULL, PARTIAL)).astype(np.int8))
    return np.concatenate(slabs)


def _pairs(
    expr: sympy.Basic, sizes: Mapping[str, int], tiles: Array, lengths: tuple[int, int], block: tuple[int, int]
) -> Array:
    """The class of each pair, ``[queries, keys]``."""
    queries, keys = lengths
    axes = {"q": np.arange(queries)[:, None], "k": np.arange(keys)[None, :]}
    visible = np.broadcast_to(evaluate(expr, Env(axes, sizes)), lengths)
    inside = tiles.repeat(block[0], 0)[:queries].repeat(block[1], 1)[:, :keys]
    return np.where(visible | (inside == SKIP), inside, HIDDEN)


def _pooled(tiles: Array, step: list[int], block: tuple[int, int]) -> Array:
    """Squares of tiles: the class all have, else partial."""
    low = high = tiles
    for dim in (0, 1):
        starts = np.arange(0, tiles.shape[dim], step[dim] // block[dim])
        low, high = np.minimum.reduceat(low, starts, dim), np.maximum.reduceat(high, starts, dim)
    return np.where(low == high, low, PARTIAL)
