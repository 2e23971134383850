"""The proof: that terms over one x rotate pairs of its features, each pair by one angle.

What has to hold, with c = cos a and s = sin a times one factor for all features::

    out[i] = x[i]·c − x[j]·s        out[j] = x[j]·c + x[i]·s        out[p] = x[p] for features that pass through

or the same with −s, which turns by −a, for pairs (i, j) that are halves, (i, i + r/2), or neighbours, (2i, 2i + 1), of
the first r features. Neighbours may be stored apart: out[i] and out[i + r/2] are then what x[2i] and x[2i + 1] turn to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations

from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.rotary.given import Table, table_of
from attnc.compiler.rotary.reads import NotRotation
from attnc.compiler.rotary.tables import COS, GIVEN, SIN
from attnc.compiler.rotary.terms import Expansion
from attnc.compiler.rotary.turns import Angle
from attnc.ir.values import Op, Value

Row = dict[tuple[int, int, int], float]
"""One feature of the result: (feature of x, kind, number of the angle) → coefficient."""


@dataclass(frozen=True)
class Rotation:
    """``result`` is ``x`` with the pairs of its first ``rotary_dim`` features turned by ``angles``."""

    result: Value
    x: Value
    style: str
    rotary_dim: int
    factor: float
    angles: tuple[Angle, ...]
    """One for each pair; none where cosines and sines are ``given``."""
    given: tuple[Table, ...]
    rounded: bool
    """Angles are float32 products, as in a table that was made so."""
    parted: bool
    """The features are stored in another order than x's: the first one of every pair, then the second one of each."""
    is_complex: bool
    """The source multiplies complex numbers, so x can be viewed as such."""
    origin: Op | None
    """An op that made a cosine or sine; None where they are given."""


def prove(expansion: Expansion, x: Value, angles: list[Angle]) -> Rotation:
    """The rotation that an expansion over ``x`` is. Raises NotRotation with the first obligation that fails."""
    if not tensor_type(x).dtype.is_float:
        raise NotRotation(f"%{x.name} is not a float tensor")
    rows = _rows(expansion)
    if any(kind == GIVEN for row in rows for _, kind, _ in row):
        return _prove_given(expansion, x, rows, angles)
    shape = _shape(expansion, rows)
    for feature, turned in enumerate(shape.turned):
        if turned.cosine != turned.sine:
            raise NotRotation(f"cosine and sine at feature {feature} are of different angles")
    for first, second in shape.pairs:
        if shape.turned[first].cosine != shape.turned[second].cosine:
            raise NotRotation(f"features {first} and {second} turn by different angles")
    turns = [shape.turned[first] for first, _ in shape.pairs]
    used = tuple(_signed(angles[turn.cosine], -turn.sign) for turn in turns)
    return _rotation(expansion, x, shape, used, ())


def _prove_given(expansion: Expansion, x: Value, rows: list[Row], angles: list[Angle]) -> Rotation:
    """The same with given waves: one table holds what the proof takes for cosines, another one the sines."""
    tables = dict.fromkeys(table_of(angles[n]) for row in rows for _, kind, n in row if kind == GIVEN)
    if len(tables) != 2:
        raise NotRotation(f"cosines and sines are read from {len(tables)} places")
    reason = NotRotation("")
    for cosines, sines in permutations(tables):
        kinds = {cosines: COS, sines: SIN}
        named: list[Row] = [
            {(j, kinds[table_of(angles[n])] if kind == GIVEN else kind, n): c for (j, kind, n), c in row.items()}
            for row in rows
        ]
        try:
            shape = _shape(expansion, named)
            signs = {shape.turned[first].sign for first, _ in shape.pairs}
            if len(signs) > 1:
                raise NotRotation("some pairs turn one way and some the other")
            used = Table.of([angles[t.cosine] for t in shape.turned], shape.pairs)
            other = Table.of([angles[t.sine] for t in shape.turned], shape.pairs)
        except NotRotation as refused:
            reason = reason if str(reason) else refused
        else:
            return _rotation(expansion, x, shape, (), (used, replace(other, negated=1 in signs)))
    raise reason


def _rotation(
    expansion: Expansion, x: Value, shape: _Shape, angles: tuple[Angle, ...], given: tuple[Table, ...]
) -> Rotation:
    return Rotation(
        result=expansion.root,
        x=x,
        style=shape.style,
        rotary_dim=len(shape.turned),
        factor=shape.turned[0].factor,
        angles=angles,
        given=given,
        rounded=_rounded(angles),
        parted=shape.parted,
        is_complex=expansion.is_complex,
        origin=expansion.origin,
    )


@dataclass(frozen=True)
class _Turned:
    """``factor · (x[i]·cos a + sign · x[partner]·sin b)``, with the numbers of both angles."""

    partner: int
    cosine: int
    sine: int
    factor: float
    sign: int


@dataclass(frozen=True)
class _Shape:
    """What a proof shows but for the angles; ``pairs`` have the feature first that a rotation takes the sine from."""

    style: str
    pairs: list[tuple[int, int]]
    turned: list[_Turned]
    parted: bool


def _shape(expansion: Expansion, rows: list[Row]) -> _Shape:
    """Which features turn with which. Raises NotRotation."""
    rotary_dim = sum(not _passes(row, i) for i, row in enumerate(rows))
    if not rotary_dim or rotary_dim % 2 or any(_passes(row, i) for i, row in enumerate(rows[:rotary_dim])):
        raise NotRotation("the features that rotate are not an even number of leading ones")
    parted = rotary_dim == len(rows) and _are_parted(rows)
    if parted and not tensor_type(expansion.root).is_contiguous:
        raise NotRotation("neighbours are stored apart, and in another order of dimensions")
    if parted:
        rows = [row for pair in zip(rows[: rotary_dim // 2], rows[rotary_dim // 2 :], strict=True) for row in pair]
    turned = [_turned(i, rows[i]) for i in range(rotary_dim)]
    if any(t.factor != turned[0].factor for t in turned):
        raise NotRotation("the factor on cosine and sine is not the same for every feature")
    style, pairs = _pairing([t.partner for t in turned])
    for first, second in pairs:
        if turned[first].sign == turned[second].sign:
            raise NotRotation(f"the signs of the sine at features {first} and {second} are no rotation's")
    return _Shape(style, pairs, turned, parted)


def _rounded(angles: tuple[Angle, ...]) -> bool:
    """Whether the angles are float32 products. Raises NotRotation where some are and some aren't."""
    found = {turn.frequency.rounded for angle in angles for turn in angle if turn.frequency is not None}
    if len(found) > 1:
        raise NotRotation("some angles were rounded to float32 and some were not")
    return True in found


def _signed(angle: Angle, sign: int) -> Angle:
    """An angle in the direction of the pair: a pair whose first feature gains the sine turns by −a."""
    return tuple(replace(turn, scale=sign * turn.scale) for turn in angle)


def _rows(expansion: Expansion) -> list[Row]:
    """Equal terms added up, feature by feature."""
    rows: list[Row] = [{} for _ in expansion.terms[0].read.chosen]
    for term in expansion.terms:
        index = term.read.index(len(term.read.coords) - 1)
        assert index is not None  # the expansion is aligned
        for lane in map(int, term.read.chosen.nonzero()[0]):
            key = (int(index[lane]), int(term.kind[lane]), int(term.angle[lane]))
            rows[lane][key] = rows[lane].get(key, 0.0) + float(term.coefficient[lane])
    return rows


def _passes(row: Row, feature: int) -> bool:
    """Whether a feature is x's, unchanged."""
    return row == {(feature, 0, 0): 1.0}


def _are_parted(rows: list[Row]) -> bool:
    """Whether the cosines of the first half of the features multiply x[0], x[2], …, those of the other x[1], x[3], …"""
    half = len(rows) // 2
    own = [[j for j, kind, _ in row if kind == COS] for row in rows]
    return half > 1 and own == [[2 * i] for i in range(half)] + [[2 * i + 1] for i in range(half)]


def _turned(feature: int, row: Row) -> _Turned:
    cosines = {j: (angle, c) for (j, kind, angle), c in row.items() if kind == COS}
    sines = {j: (angle, c) for (j, kind, angle), c in row.items() if kind == SIN}
    if len(row) != 2 or len(cosines) != 1 or len(sines) != 1:
        raise NotRotation(f"feature {feature} is not the sum of one cosine and one sine term")
    (own, (angle, cosine)), (partner, (other, sine)) = *cosines.items(), *sines.items()
    if own != feature:
        raise NotRotation(f"the cosine at feature {feature} multiplies feature {own}")
    if abs(cosine) != abs(sine) or not cosine:
        raise NotRotation(f"cosine and sine at feature {feature} have different factors")
    return _Turned(partner, angle, other, cosine, 1 if sine == cosine else -1)


def _pairing(partners: list[int]) -> tuple[str, list[tuple[int, int]]]:
    """The style, and the pairs with the feature that loses the sine first."""
    count = len(partners)
    styles = {
        "half": [(i, i + count // 2) for i in range(count // 2)],
        "interleaved": [(i, i + 1) for i in range(0, count, 2)],
    }
    for style, pairs in styles.items():
        if all(partners[a] == b and partners[b] == a for a, b in pairs):
            return style, pairs
    raise NotRotation("the features that turn with each other are neither halves nor neighbours")
