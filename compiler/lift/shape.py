"""Views: every op here only renames coordinates of one operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy

from attnc.compiler.lift.element import Coords, Element, Refused
from attnc.compiler.lift.scope import Scope, dimension, integer, source, tensor
from attnc.ir.types import Dim
from attnc.ir.values import Op

Rule = Callable[[Scope, Op, Coords], Element]
Rename = Callable[[Scope, Op, Coords], Coords]


def _renames(rename: Rename) -> Rule:
    """A rule that reads the operand at other coordinates."""
    return lambda scope, op, at: scope.at(source(op), rename(scope, op, at))


def reshape(scope: Scope, op: Op, at: Coords) -> Coords:
    """Row-major renumbering from the result's shape to the operand's."""
    return renumbered(scope, tensor(op.result).shape, at, tensor(source(op)).shape)


def renumbered(scope: Scope, shape: Sequence[Dim], at: Coords, target: Sequence[Dim]) -> Coords:
    """The coordinates in ``target`` of the element at ``at`` in ``shape`` (equal counts of elements, row-major).

    Both shapes are cut where their running products agree, so that only dimensions really split or merged are
    computed with. Raises Refused for an empty tensor.
    """
    if 0 in (*shape, *target):
        raise Refused("a view of an empty tensor")
    found: dict[int, sympy.Expr] = {d: sympy.Integer(0) for d, n in enumerate(target) if n == 1}
    outer = [d for d, n in enumerate(shape) if n != 1]
    inner = [d for d, n in enumerate(target) if n != 1]
    while outer or inner:
        left, right = _first_cut([shape[d] for d in outer], [target[d] for d in inner])
        index = _linear([at[d] for d in outer[:left]], [shape[d] for d in outer[:left]])
        parts = _split(scope, index, [target[d] for d in inner[:right]])
        found.update(zip(inner[:right], parts, strict=True))
        outer, inner = outer[left:], inner[right:]
    return tuple(found[d] for d in range(len(target)))


def _first_cut(shape: Sequence[Dim], target: Sequence[Dim]) -> tuple[int, int]:
    """The fewest leading dimensions of both shapes with equal products; all of them where no proper cut is found."""
    products = _products(target)
    for left, product in enumerate(_products(shape), 1):
        if product in products:
            return left, products.index(product) + 1
    return len(shape), len(target)


def _products(shape: Sequence[Dim]) -> list[sympy.Expr]:
    found, product = [], sympy.Integer(1)
    for length in shape:
        product = sympy.expand(product * length)
        found.append(product)
    return found


def _linear(at: Sequence[sympy.Expr], shape: Sequence[Dim]) -> sympy.Expr:
    index = sympy.Integer(0)
    for coordinate, length in zip(at, shape, strict=True):
        index = sympy.expand(index * length + coordinate)
    return index


def _split(scope: Scope, index: sympy.Expr, shape: Sequence[Dim]) -> list[sympy.Expr]:
    """Row-major coordinates of a linear index; the first needs no modulus as the index is in range."""
    parts: list[sympy.Expr] = []
    for length in reversed(shape[1:]):
        parts.append(scope.simplify(sympy.Mod(index, length)))
        index = scope.simplify(sympy.floor(index / length))
    return [index, *reversed(parts)][: len(shape)]


def unsqueeze(scope: Scope, op: Op, at: Coords) -> Coords:
    """The coordinates without the new one."""
    axis = dimension(op.arg(1, "dim"), len(at))
    return at[:axis] + at[axis + 1 :]


def squeeze(scope: Scope, op: Op, at: Coords) -> Coords:
    """Coordinate 0 for every dimension the result lacks: those named, or all, of length 1.

    A named dimension of symbolic length is kept by the result's type; ranks that disagree are refused.
    """
    shape = tensor(source(op)).shape
    named = op.arg(1, "dim")
    if isinstance(named, tuple):
        dims = {dimension(d, len(shape)) for d in named}
    else:
        dims = set(range(len(shape))) if named is None else {dimension(named, len(shape))}
    gone = {d for d in dims if shape[d] == 1}
    if len(shape) - len(gone) != len(at):
        raise Refused("a squeeze of a dimension of unknown length")
    kept = iter(at)
    return tuple(sympy.Integer(0) if d in gone else next(kept) for d in range(len(shape)))


def expand(scope: Scope, op: Op, at: Coords) -> Coords:
    """The trailing coordinates; those of length 1 are read at 0 by the scope."""
    return at[len(at) - tensor(source(op)).rank :]


def permute(scope: Scope, op: Op, at: Coords) -> Coords:
    """Result dimension i is operand dimension ``dims[i]``."""
    dims = op.arg(1, "dims")
    if not isinstance(dims, tuple):
        raise Refused("a permutation that is not a list")
    found = {dimension(d, len(at)): c for d, c in zip(dims, at, strict=True)}
    return tuple(found[d] for d in range(len(at)))


def transpose(scope: Scope, op: Op, at: Coords) -> Coords:
    """Two dimensions exchanged."""
    return _swap(at, dimension(op.arg(1, "dim0"), len(at)), dimension(op.arg(2, "dim1"), len(at)))


def last_two(scope: Scope, op: Op, at: Coords) -> Coords:
    """The last two dimensions exchanged."""
    return _swap(at, len(at) - 2, len(at) - 1) if len(at) > 1 else at


def _swap(at: Coords, a: int, b: int) -> Coords:
    swapped = list(at)
    swapped[a], swapped[b] = at[b], at[a]
    return tuple(swapped)


def flip(scope: Scope, op: Op, at: Coords) -> Coords:
    """Chosen dimensions counted from the end."""
    dims = op.arg(1, "dims")
    chosen = {dimension(d, len(at)) for d in dims} if isinstance(dims, tuple) else set()
    shape = tensor(source(op)).shape
    return tuple(shape[d] - 1 - c if d in chosen else c for d, c in enumerate(at))


def repeat(scope: Scope, op: Op, at: Coords) -> Coords:
    """Coordinates modulo the operand's lengths; dimensions added in front are dropped."""
    shape = tensor(source(op)).shape
    trailing = at[len(at) - len(shape) :]
    return tuple(scope.simplify(sympy.Mod(c, n)) for c, n in zip(trailing, shape, strict=True))


def repeat_interleave(scope: Scope, op: Op, at: Coords) -> Coords:
    """The quotient by the number of repeats, along ``dim``."""
    if op.arg(2, "dim") is None:
        raise Refused("repeat_interleave of a flattened tensor")
    repeats, axis = integer(op.arg(1, "repeats")), dimension(op.arg(2, "dim"), len(at))
    return tuple(scope.simplify(sympy.floor(c / repeats)) if d == axis else c for d, c in enumerate(at))


RULES: dict[str, Rule] = {
    f"aten.{name}": _renames(rename)
    for rename, names in (
        (
            reshape,
            (
                "view.default",
                "_unsafe_view.default",
                "reshape.default",
                "flatten.using_ints",
                "unflatten.int",
                "view_as.default",
            ),
        ),
        (unsqueeze, ("unsqueeze.default",)),
        (squeeze, ("squeeze.default", "squeeze.dim", "squeeze.dims")),
        (expand, ("expand.default", "expand_as.default", "broadcast_to.default")),
        (permute, ("permute.default",)),
        (transpose, ("transpose.int", "swapaxes.default")),
        (last_two, ("t.default", "mT.default")),
        (flip, ("flip.default",)),
        (repeat, ("repeat.default",)),
        (repeat_interleave, ("repeat_interleave.self_int",)),
    )
    for name in names
}
