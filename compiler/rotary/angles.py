"""Angles: each lane of a tensor as Σ position · frequency.

A *position* doesn't depend on the feature, a *frequency* on nothing else. Which tensors they are is found by going
backward through products, sums, casts and rearrangements until each factor is one or the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from attnc.compiler.fuse.axes import Coords, is_one
from attnc.compiler.fuse.contraction import contraction
from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.fuse.pointwise import BINARY, CASTS, is_plain_cast
from attnc.compiler.rotary.factors import Factors, is_linear, operand, place
from attnc.compiler.rotary.reads import NotRotation, Part, Read
from attnc.compiler.rotary.rearranging import sources
from attnc.compiler.rotary.turns import Angles, added, products, scaled
from attnc.ir.values import Op, Value

NEGATIONS = frozenset(("aten.neg.default", "aten.negative.default"))
OUTER = frozenset(("aten.outer.default", "aten.ger.default"))
MAX_STEPS = 100


@dataclass
class AngleReader(Factors):
    """Reads the angles of one tensor. ``joined``: an angle may do without a position."""

    joined: bool = False
    _steps: int = 0

    def angles(self, read: Read) -> Angles:
        """The angle of each chosen lane, every turn with both factors. Raises NotRotation."""
        found = self._sums(read)
        for angle in found.values():
            if any((turn.position is None and not self.joined) or turn.frequency is None for turn in angle):
                raise NotRotation(f"the angle {place(read.value)} is no product of a position and a frequency")
        if not self.detached:
            return found
        return {lane: tuple(replace(turn, detached=True) for turn in angle) for lane, angle in found.items()}

    def _sums(self, read: Read) -> Angles:
        read, op, self._steps = read.fresh(), read.value.op, self._steps + 1
        if self._steps > MAX_STEPS:
            raise NotRotation(f"the angle is computed in more than {MAX_STEPS} steps")
        self.detached |= op in self.unrecorded
        runs_along, on_feature = self._depends(read)
        if not runs_along:
            return self.frequencies(read)
        if op is None or not tensor_type(read.value).dtype.is_float or (not on_feature and is_linear(read.value)):
            return self.positions(read)
        pieces = sources(read)
        if pieces is not None:
            return {lane: angle for piece in pieces for lane, angle in self._sums(piece).items()}
        return self._arithmetic(read, op)

    def _depends(self, read: Read) -> tuple[bool, bool]:
        """Whether the elements depend on a dimension before the features, and on the feature."""
        axes = [axis for part in read.coords for axis in part]
        return any(axis not in read.numbers for axis in axes), any(axis in read.numbers for axis in axes)

    def _arithmetic(self, read: Read, op: Op) -> Angles:
        """An op that depends on both: a product or sum of what does."""
        if op.name in CASTS and is_plain_cast(op):
            return self._sums(operand(read, op.args[0]))
        if op.name in NEGATIONS:
            return scaled(self._sums(operand(read, op.args[0])), -1.0)
        kind, (first, second) = BINARY.get(op.name, ""), (*op.args, None, None)[:2]
        both = isinstance(first, Value) and isinstance(second, Value)
        if kind in ("mul", "div") and isinstance(second, int | float) and second:
            return scaled(self._sums(operand(read, first)), second if kind == "mul" else 1 / second)
        if kind == "mul" and both:
            return products(self._sums(operand(read, first)), self._sums(operand(read, second)), op)
        if kind in ("add", "sub") and both and op.arg(2, "alpha", 1) == 1:
            left, right = self._sums(operand(read, first)), self._sums(operand(read, second))
            right = right if kind == "add" else scaled(right, -1.0)
            return {lane: added((*angle, *right[lane])) for lane, angle in left.items()}
        outer = self._outer(read, op)
        if outer is not None:
            return products(self._sums(outer[0]), self._sums(outer[1]), op)
        return self.positions(read)

    def _outer(self, read: Read, op: Op) -> tuple[Read, Read] | None:
        """Both factors of a contraction over a dimension of length 1."""
        if op.name in OUTER:
            left, right = op.args[0], op.args[1]
            assert isinstance(left, Value) and isinstance(right, Value)
            return read.moved(left, read.coords[:1]), read.moved(right, read.coords[1:])
        form = contraction(op)
        if form is None or form.addend is not None or form.alpha != 1:
            return None
        where = dict(zip(form.result_labels, read.coords, strict=True))
        sides = ((form.left, form.left_labels), (form.right, form.right_labels))
        lengths = [(name, n) for x, labels in sides for name, n in zip(labels, tensor_type(x).shape, strict=True)]
        if any(name not in where and not is_one(n) for name, n in lengths):
            return None
        first, second = (read.moved(x, _labelled(x, labels, where)) for x, labels in sides)
        return first, second


def _labelled(value: Value, labels: tuple[str, ...], where: Mapping[str, Part]) -> Coords:
    shape = tensor_type(value).shape
    return tuple(() if is_one(n) else where[name] for name, n in zip(labels, shape, strict=True))
