"""Waves joined along positions: a class token with angles of its own before the patches of an image."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnc.compiler.fuse.axes import Axis, is_one
from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.rotary.reads import NotRotation, Read
from attnc.compiler.rotary.turns import Ones, Pad, Position, Turn
from attnc.ir.values import Op, Value

JOIN = "aten.cat.default"


@dataclass(frozen=True)
class JoinedPart:
    """One operand of a ``cat``: how it is read, where its positions lie in the whole, and its axes' places."""

    read: Read
    pad: Pad
    length: int
    places: dict[Axis, int]

    def among_zeros(self, turn: Turn) -> Turn:
        """The turn with its position put into the whole. Raises NotRotation."""
        position = turn.position or Position(Ones(self.length), (self.pad.place,))
        if self.pad.place not in position.places:
            raise NotRotation("waves are joined along a dimension their positions don't run along")
        return replace(turn, position=replace(position, pads=(*position.pads, self.pad)))


def joined_parts(read: Read, op: Op, places: dict[Axis, int]) -> list[JoinedPart]:
    """The operands of a ``cat`` along one whole dimension of positions, of fixed lengths. Raises NotRotation."""
    operands, dim = op.args[0], op.arg(1, "dim", 0)
    if not isinstance(operands, tuple) or not isinstance(dim, int):
        raise NotRotation(f"%{read.value.name} joins tensors in a way that isn't known")
    dim %= tensor_type(read.value).rank
    part = read.coords[dim]
    if len(part) != 1 or part[0] not in places:
        raise NotRotation(f"%{read.value.name} joins waves along a part of a dimension")
    found, start = [], 0
    lengths = [tensor_type(x).shape[dim] for x in operands if isinstance(x, Value)]
    fixed = [n for n in lengths if isinstance(n, int)]
    if len(fixed) < len(operands):
        raise NotRotation(f"%{read.value.name} joins waves of lengths that aren't fixed")
    others = {axis: place for axis, place in places.items() if axis is not part[0]}
    for x, length in zip(operands, fixed, strict=True):
        assert isinstance(x, Value)  # or there were fewer lengths
        axis = Axis(length, atomic=False)
        coords = (*read.coords[:dim], () if is_one(length) else (axis,), *read.coords[dim + 1 :])
        pad = Pad(places[part[0]], start, sum(fixed) - start - length)
        kept = others if is_one(length) else {**others, axis: places[part[0]]}
        found.append(JoinedPart(read.moved(x, coords), pad, length, kept))
        start += length
    return found
