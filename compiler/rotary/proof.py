"""The proof: that terms over one x rotate pairs of its features, each pair by one angle.

What has to hold, with c = cos a and s = sin a times one factor for all features::

    out[i] = x[i]·c − x[j]·s        out[j] = x[j]·c + x[i]·s        out[p] = x[p] for features that pass through

or the same with −s, which turns by −a, for pairs (i, j) that are halves, (i, i + r/2), or neighbours, (2i, 2i + 1), of
the first r features. Neighbours may be stored apart: out[i] and out[i + r/2] are then what x[2i] and x[2i + 1] turn to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.rotary.reads import NotRotation
from attnc.compiler.rotary.tables import COS, SIN
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
    rounded: bool
    """Angles are float32 products, as in a table that was made so."""
    parted: bool
    """The features are stored in another order than x's: the first one of every pair, then the second one of each."""
    is_complex: bool
    """The source multiplies complex numbers, so x can be viewed as such."""
    origin: Op
    """An op that made a cosine or sine."""


def prove(expansion: Expansion, x: Value, angles: list[Angle]) -> Rotation:
    """The rotation that an expansion over ``x`` is. Raises NotRotation with the first obligation that fails."""
    if not tensor_type(x).dtype.is_float:
        raise NotRotation(f"%{x.name} is not a float tensor")
    rows = _rows(expansion)
    rotary_dim = sum(not _passes(row, i) for i, row in enumerate(rows))
    if not rotary_dim or rotary_dim % 2 or any(_passes(row, i) for i, row in enumerate(rows[:rotary_dim])):
        raise NotRotation("the features that rotate are not an even number of leading ones")
    parted = rotary_dim == len(rows) and _are_parted(rows)
    if parted and not tensor_type(expansion.root).is_contiguous:
        raise NotRotation("neighbours are stored apart, and in another order of dimensions")
    if parted:
        rows = [row for pair in zip(rows[: rotary_dim // 2], rows[rotary_dim // 2 :], strict=True) for row in pair]
    turned = [_turned(i, rows[i]) for i in range(rotary_dim)]
    factor = turned[0].factor
    if any(t.factor != factor for t in turned):
        raise NotRotation("the factor on cosine and sine is not the same for every feature")
    style, pairs = _pairing([t.partner for t in turned])
    for first, second in pairs:
        if turned[first].angle != turned[second].angle:
            raise NotRotation(f"features {first} and {second} turn by different angles")
        if turned[first].sign == turned[second].sign:
            raise NotRotation(f"the signs of the sine at features {first} and {second} are no rotation's")
    assert expansion.origin is not None  # a row with an angle has met a wave
    used = tuple(_signed(angles[turned[first].angle], -turned[first].sign) for first, _ in pairs)
    return Rotation(
        result=expansion.root,
        x=x,
        style=style,
        rotary_dim=rotary_dim,
        factor=factor,
        angles=used,
        rounded=_rounded(used),
        parted=parted,
        is_complex=expansion.is_complex,
        origin=expansion.origin,
    )


def _rounded(angles: tuple[Angle, ...]) -> bool:
    """Whether the angles are float32 products. Raises NotRotation where some are and some aren't."""
    found = {turn.frequency.rounded for angle in angles for turn in angle if turn.frequency is not None}
    if len(found) > 1:
        raise NotRotation("some angles were rounded to float32 and some were not")
    return True in found


def _signed(angle: Angle, sign: int) -> Angle:
    """An angle in the direction of the pair: a pair whose first feature gains the sine turns by −a."""
    return tuple(replace(turn, scale=sign * turn.scale) for turn in angle)


@dataclass(frozen=True)
class _Turned:
    """``factor · (x[i]·cos a + sign · x[partner]·sin a)``."""

    partner: int
    angle: int
    factor: float
    sign: int


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
    if angle != other:
        raise NotRotation(f"cosine and sine at feature {feature} are of different angles")
    if abs(cosine) != abs(sine) or not cosine:
        raise NotRotation(f"cosine and sine at feature {feature} have different factors")
    return _Turned(partner, angle, cosine, 1 if sine == cosine else -1)


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
