"""The factors of angles: which tensor holds the positions, which the frequencies, and how they are indexed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import sympy

from attnc.compiler.fuse.axes import Axis, broadcast
from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.fuse.pointwise import BINARY, CASTS, is_plain_cast
from attnc.compiler.lift.lifter import Lifter
from attnc.compiler.rotary.reads import NotRotation, Part, Read, Taken, Window
from attnc.compiler.rotary.rearranging import GATHERS, REARRANGING, sources
from attnc.compiler.rotary.turns import MAX_TURNS, Angles, Frequency, Position, Turn, scaled
from attnc.ir.index import axis as index_axis
from attnc.ir.types import DType, TensorType
from attnc.ir.values import Arg, Op, Value

_NONLINEAR = frozenset(
    f"aten.{name}"
    for name in (
        *("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "square.default", "sqrt.default", "rsqrt.default"),
        *("exp.default", "exp2.default", "log.default", "log2.default", "log1p.default", "reciprocal.default"),
        *("sin.default", "cos.default", "tan.default", "tanh.default", "sigmoid.default", "abs.default"),
    )
)
_AFFINE = CASTS | (REARRANGING - GATHERS) | {n for n, kind in BINARY.items() if kind in ("add", "sub", "mul", "div")}
_FLOATS = (DType.F32, DType.BF16, DType.F16)


@dataclass
class Factors:
    """Reads positions and frequencies for one tensor of angles.

    ``places`` numbers its axes before the features. ``unrecorded`` are the ops that run with gradients off; one on the
    way, or a detach, sets ``detached``.
    """

    places: Mapping[Axis, int]
    lifter: Lifter
    unrecorded: Collection[Op]
    detached: bool = False

    def frequencies(self, read: Read) -> Angles:
        """Elements that depend on the feature alone, behind what only rearranges or exactly widens them."""
        read, op = read.fresh(), read.value.op
        self.detached |= op is not None and (op in self.unrecorded or op.name == "aten.detach.default")
        pieces = None if op is not None and op.name in GATHERS else sources(read)
        if pieces is not None:
            return {lane: angle for piece in pieces for lane, angle in self.frequencies(piece).items()}
        if op is not None and widens(op):
            return self.frequencies(operand(read, op.args[0]))
        index = read.flat()
        return {int(x): (Turn(frequency=Frequency(read.value, int(index[x]))),) for x in read.chosen.nonzero()[0]}

    def positions(self, read: Read) -> Angles:
        """Elements that are positions: one for each index of the dimensions before the features."""
        read = self._peeled(read.fresh())
        if not is_linear(read.value):
            raise NotRotation(f"the angle is not linear in the position: {place(read.value)}")
        taken = [(dim, part[0]) for dim, part in enumerate(read.coords) if part and isinstance(part[0], Taken)]
        if taken:
            return self._looked_up(read, *taken[0])
        found = self.elements(read)
        if len(set(found.values())) > MAX_TURNS:
            raise NotRotation(f"%{read.value.name} holds more than {MAX_TURNS} positions")
        return found

    def elements(self, read: Read) -> Angles:
        """For each lane the element of the tensor, as a position: the index of its feature is fixed."""
        return {lane: (Turn(position=self._position(read, lane)),) for lane in map(int, read.chosen.nonzero()[0])}

    def _looked_up(self, read: Read, dim: int, taken: Axis) -> Angles:
        """Positions read from a table whose row r holds ``step · r``: ``step`` times the row asked for."""
        assert isinstance(taken, Taken) and taken.index is not None
        row = index_axis("row")
        at = tuple(row if d == dim else sympy.Integer(0) for d in range(len(read.coords)))
        formula = self.lifter.index(read.value, at)
        step = None if formula is None else sympy.cancel(formula / row)
        if step is None or not step.is_Integer or any(part for d, part in enumerate(read.coords) if d != dim):
            raise NotRotation(f"the rows of the table {place(read.value)} are no positions")
        return scaled(self.positions(read.moved(taken.index, taken.at)), float(step))

    def _peeled(self, read: Read) -> Read:
        """The deepest tensor that holds the same positions in whole dimensions; those cut behind it are whole again."""
        simple, cut = read, self._cut()
        while (op := read.value.op) is not None:
            if widens(op, integers=True):
                read = operand(read, op.args[0])
            else:
                pieces = sources(read)
                if pieces is None or len(pieces) != 1 or _windows(pieces[0]) > _windows(read):
                    break
                self.detached |= op.name == "aten.detach.default"
                read = pieces[0]
            if self._is_simple(read):
                simple, cut = read, self._cut()
        for axis in self._cut() - cut:
            axis.parts = None
        return simple

    def _cut(self) -> set[Axis]:
        """The axes that a view has cut."""
        return {axis for axis in self.places if axis.parts is not None}

    def _is_simple(self, read: Read) -> bool:
        return all(self._whole(read, part) for part in read.coords)

    def _whole(self, read: Read, part: Part) -> bool:
        """Whether a coordinate is a number, a whole dimension of the rotated tensor, or a window of one."""
        if read.number(part) is not None:
            return True
        (axis, *rest) = part
        if rest:
            return False
        if isinstance(axis, Window):
            return len(axis.part) == 1 and axis.part[0] in self.places
        return axis in self.places or isinstance(axis, Taken)

    def rows(self, read: Read, dim: int) -> Angles:
        """For each lane the row of a table, which runs along ``dim``, as a position. Raises NotRotation."""
        read = read.fresh()
        part = read.coords[dim]
        if isinstance(part[0], Taken) and part[0].index is not None:
            return self.positions(read.moved(part[0].index, part[0].at))
        count = tensor_type(read.value).shape[dim]
        if not isinstance(count, int) or not self._whole(read, part):
            raise NotRotation(f"the rows of %{read.value.name} run along a part of a dimension")
        axis, windows = part[0], []
        if isinstance(axis, Window):
            windows.append((0, axis.cut))
            axis = axis.part[0]
        turn = Turn(position=Position(count, (self.places[axis],), windows=tuple(windows)))
        return {int(lane): (turn,) for lane in read.chosen.nonzero()[0]}

    def _position(self, read: Read, lane: int) -> Position:
        places: list[int | None] = []
        fixed, windows = [], []
        for dim, part in enumerate(read.coords):
            index = read.number(part)
            axis = part[0] if part else None
            if not self._whole(read, part):
                raise NotRotation(f"the positions %{read.value.name} run along a part of a dimension")
            if isinstance(axis, Window):
                windows.append((dim, axis.cut))
                axis = axis.part[0]
            if index is not None and part:
                fixed.append((dim, int(index[lane])))
            places.append(None if index is not None or axis is None else self.places[axis])
        kept = [place for place in places if place is not None]
        if len(set(kept)) != len(kept):
            raise NotRotation(f"the positions %{read.value.name} are read along a diagonal")
        return Position(read.value, tuple(places), tuple(fixed), tuple(windows))


def widens(op: Op, integers: bool = False) -> bool:
    """A cast that the rotation makes again: from a narrower float dtype, or from integers, to float32."""
    if op.name not in CASTS or not is_plain_cast(op) or not isinstance(op.args[0], Value):
        return False
    source, result = tensor_type(op.args[0]).dtype, tensor_type(op.result).dtype
    return result is source or (result is DType.F32 and (source in _FLOATS or (integers and source.is_int)))


def is_linear(value: Value) -> bool:
    """Whether a position is an affine function of what it is computed from, as far as arithmetic on it goes."""
    waiting, seen = [value], {value}
    while waiting:
        value = waiting.pop()
        operands = [] if value.op is None else [x for x in value.op.operands if isinstance(x.type, TensorType)]
        if value.op is None or not operands:
            continue
        if value.op.name in _NONLINEAR or _multiplies(value.op, operands):
            return False
        if value.op.name in _AFFINE:
            waiting += [x for x in operands if x not in seen]
            seen.update(operands)
    return True


def _multiplies(op: Op, operands: list[Value]) -> bool:
    """A product of two tensors; one of different integers may number the cells of a grid."""
    if BINARY.get(op.name) not in ("mul", "div") or len(operands) < 2 or not all(tensor_type(x).rank for x in operands):
        return False
    return tensor_type(op.result).dtype.is_float or operands[0] is operands[1]


def operand(read: Read, arg: Arg) -> Read:
    """An operand of a pointwise op, read where it broadcasts to the result. Raises NotRotation for a number."""
    if not isinstance(arg, Value):
        raise NotRotation(f"the angle {place(read.value)} is shifted by a constant")
    return read.moved(arg, broadcast(read.coords, tensor_type(arg).shape))


def _windows(read: Read) -> int:
    return sum(isinstance(axis, Window) for part in read.coords for axis in part)


def place(value: Value) -> str:
    """A value and where the program computes it, for reasons."""
    where = f" at {value.op.loc}" if value.op is not None and value.op.loc.file else ""
    return f"%{value.name}{where}"
