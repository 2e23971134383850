"""Waves: tensors of cosines and sines, element by element as ``factor · cos(angle)`` or ``factor · sin(angle)``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from attnc.compiler.fuse.axes import Axis, is_one
from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.fuse.pointwise import BINARY, CASTS, is_plain_cast
from attnc.compiler.lift.lifter import Lifter
from attnc.compiler.rotary.angles import NEGATIONS, AngleReader
from attnc.compiler.rotary.joins import JOIN, JoinedPart, joined_parts
from attnc.compiler.rotary.reads import Chosen, Lanes, NotRotation, Read
from attnc.compiler.rotary.rearranging import sources
from attnc.compiler.rotary.tables import COS, GIVEN, SIN, Tables, rows_of
from attnc.compiler.rotary.turns import Angle, Frequency, added
from attnc.ir.graph import Graph
from attnc.ir.values import Op, Value

KINDS = {"aten.cos.default": COS, "aten.sin.default": SIN}
POLAR = "aten.polar.default"
COMPLEX = "aten.complex.default"
ONES = frozenset(("aten.ones_like.default", "aten.ones.default"))
MAX_ELEMENTS = 4096
"""Features of one wave; a rotary dimension is far smaller."""


@dataclass(frozen=True, eq=False)
class Wave:
    """For each element of a tensor's feature dimensions: kind, factor, and the number of its angle."""

    shape: tuple[int, ...]
    kind: Lanes
    factor: NDArray[np.float64]
    angle: Lanes
    detached: Chosen
    """Where no gradient passes between the wave and its cosine or sine."""
    origin: Op | None
    """An op that made a cosine or sine: where its metadata come from. None where they were given."""

    @staticmethod
    def empty(shape: tuple[int, ...], origin: Op | None) -> Wave:
        count = int(np.prod(shape))
        kind, factor, angle = np.zeros(count, np.int64), np.ones(count), np.zeros(count, np.int64)
        return Wave(shape, kind, factor, angle, np.zeros(count, np.bool_), origin)


@dataclass
class Waves:
    """The waves of one graph, remembered; angles are numbered so that equal ones have equal numbers."""

    graph: Graph
    lifter: Lifter
    unrecorded: Collection[Op] = ()
    """Ops that run with gradients off."""
    given: Collection[Value] = ()
    """Inputs of the graph that may hold cosines or sines."""
    numbers: dict[Angle, int] = field(default_factory=dict)
    known: dict[tuple[Value, int], Wave | str] = field(default_factory=dict)
    tables: Tables = field(init=False)

    def __post_init__(self) -> None:
        self.tables = Tables(self.graph)

    def angles(self) -> list[Angle]:
        """Every angle met, by its number."""
        return list(self.numbers)

    def of(self, value: Value, features: int) -> Wave:
        """The wave of a tensor whose last ``features`` dimensions are features. Raises NotRotation."""
        key = (value, features)
        if key not in self.known:
            try:
                self.known[key] = self._wave(value, features)
            except NotRotation as refused:
                self.known[key] = str(refused)
        found = self.known[key]
        if isinstance(found, str):
            raise NotRotation(found)
        return found

    def _wave(self, value: Value, features: int) -> Wave:
        kind = tensor_type(value)
        lead, shape = kind.shape[: kind.rank - features], kind.shape[kind.rank - features :]
        sizes = (*shape, 2) if kind.dtype.is_complex else shape
        if not all(isinstance(n, int) for n in sizes) or np.prod(sizes) > MAX_ELEMENTS:
            raise NotRotation(f"%{value.name} is no cosine or sine of constant size")
        lengths = tuple(n for n in sizes if isinstance(n, int))
        axes = [Axis(n, atomic=False) for n in (*lead, *lengths)]
        grid = np.indices(lengths).reshape(len(lengths), -1)
        numbers = dict(zip(axes[len(lead) :], grid, strict=True))
        coords = tuple(() if is_one(axis.length) else (axis,) for axis in axes)
        places = {axis: len(lead) - 1 - d for d, axis in enumerate(axes[: len(lead)])}
        read = Read(value, coords, np.ones(grid.shape[1], np.bool_), numbers)
        wave = Wave.empty(lengths, value.op)
        origins = [self._fill(wave, piece, places) for piece in self._pieces(wave, read)]
        return replace(wave, origin=origins[0])

    def _pieces(self, wave: Wave, read: Read) -> list[Read]:
        """The cosines and sines behind a tensor; constant factors met on the way go into ``wave``."""
        read = read.fresh()
        pieces = sources(read)
        if pieces is None:
            source = self._unscaled(wave, read)
            if source is None:
                return [read]
            pieces = [source]
        wave.detached[read.chosen] |= read.value.op in self.unrecorded or _is_cut(read.value)
        return [found for piece in pieces for found in self._pieces(wave, piece)]

    def _unscaled(self, wave: Wave, read: Read) -> Read | None:
        """The operand of a cast, a negation or a multiplication by a number; None for other ops."""
        op = read.value.op
        if op is None or not op.args or not isinstance(op.args[0], Value):
            return None
        scale, kind = 1.0, BINARY.get(op.name, "")
        other = op.args[1] if len(op.args) > 1 else None
        if op.name in NEGATIONS:
            scale = -1.0
        elif kind in ("mul", "div") and isinstance(other, int | float) and other:
            scale = float(other) if kind == "mul" else 1 / other
        elif op.name not in CASTS or not is_plain_cast(op) or _is_complex(op.args[0]) != _is_complex(op.result):
            return None
        wave.factor[read.chosen] *= scale
        return read.moved(op.args[0], read.coords[: tensor_type(read.value).rank])

    def _fill(self, wave: Wave, read: Read, places: dict[Axis, int], joined: bool = False) -> Op | None:
        """Enter what the lanes of a read are. Raises NotRotation where they are no cosines or sines.

        ``joined``: angles may do without a position.
        """
        read, op = read.fresh(), read.value.op
        reader = AngleReader(places, self.lifter, self.unrecorded, joined=joined)
        if op is None:
            self._given(wave, reader, read)
            return None
        if op.name in KINDS:
            wave.kind[read.chosen] = KINDS[op.name]
            self._enter(wave, reader, read, op, 0)
        elif op.name == POLAR and _is_one(op.args[0]):
            real = read.component() == 0
            wave.kind[read.chosen] = np.where(real, COS, SIN)[read.chosen]
            self._enter(wave, reader, read, op, 1)
        elif op.name == COMPLEX:
            return self._complex(wave, read, op, places)
        elif op.name == JOIN:
            self._joined(wave, read, op, places)
        elif op.name == "ir.constant":
            self._table(wave, reader, read)
        else:
            raise NotRotation(f"%{read.value.name} = {op.name} at {op.loc} is no cosine or sine of an angle")
        return op

    def _given(self, wave: Wave, reader: AngleReader, read: Read) -> None:
        """An input: its elements stand for themselves, each with the number of its place."""
        if read.value not in self.given:
            raise NotRotation(f"%{read.value.name} is an input of the graph: its numbers aren't known when compiling")
        if wave.detached[read.chosen].any():
            raise NotRotation(f"the gradient of %{read.value.name} is cut")
        wave.kind[read.chosen] = GIVEN
        self._number(wave, reader.elements(read))

    def _joined(self, wave: Wave, read: Read, op: Op, places: dict[Axis, int]) -> None:
        """``cat`` along a dimension of positions: of each lane the parts must be one kind of wave with one factor.

        The angle is the sum of the parts' angles, each with its positions among zeros. In a part whose waves don't
        depend on the position, that is 1 times the angle.
        """
        parts = joined_parts(read, op, places)
        found = [self._part(wave, part, op) for part in parts]
        chosen, first = read.chosen, found[0]
        if any(((w.kind != first.kind) | (w.factor != first.factor))[chosen].any() for w in found):
            raise NotRotation(f"%{read.value.name} joins waves of different kinds or factors")
        wave.kind[chosen] = first.kind[chosen]
        wave.factor[chosen] *= first.factor[chosen]
        known = self.angles()
        angles: dict[int, Angle] = {}
        for lane in map(int, chosen.nonzero()[0]):
            turns = [(part, turn) for part, w in zip(parts, found, strict=True) for turn in known[w.angle[lane]]]
            angles[lane] = added(tuple(part.among_zeros(turn) for part, turn in turns))
        self._number(wave, angles)

    def _part(self, whole: Wave, part: JoinedPart, op: Op) -> Wave:
        """The wave of one operand of a ``cat``."""
        wave = Wave.empty(whole.shape, op)
        for piece in self._pieces(wave, part.read):
            self._fill(wave, piece, part.places, joined=True)
        return wave

    def _enter(self, wave: Wave, reader: AngleReader, read: Read, op: Op, argument: int) -> None:
        source = op.args[argument]
        assert isinstance(source, Value)
        reader.detached = op in self.unrecorded or bool(wave.detached[read.chosen].any())
        plain = Read(source, read.coords[: tensor_type(source).rank], read.chosen, read.numbers)
        self._number(wave, reader.angles(plain))

    def _number(self, wave: Wave, angles: dict[int, Angle]) -> None:
        for lane, angle in angles.items():
            wave.angle[lane] = self.numbers.setdefault(angle, len(self.numbers))

    def _complex(self, wave: Wave, read: Read, op: Op, places: dict[Axis, int]) -> Op | None:
        """``complex(real, imaginary)``: each component is a tensor of its own."""
        component = read.component()
        coords, origins = read.coords[:-1], []
        for place, source in enumerate(op.args[:2]):
            chosen = read.chosen & (component == place)
            if chosen.any() and isinstance(source, Value):
                for piece in self._pieces(wave, Read(source, coords, chosen, read.numbers)):
                    origins.append(self._fill(wave, piece, places))
        return origins[0]

    def _table(self, wave: Wave, reader: AngleReader, read: Read) -> None:
        """A constant whose row n holds cosines or sines of n times a frequency."""
        dim = rows_of(read)
        positions = reader.rows(read, dim)
        angles: dict[int, Angle] = {}
        for lane, (kind, factor, frequency, rounded) in self.tables.columns(read, dim).items():
            wave.kind[lane] = kind
            wave.factor[lane] *= factor
            known = Frequency(None, 0, frequency, rounded)
            angles[lane] = tuple(replace(turn, frequency=known) for turn in positions[lane]) if frequency else ()
        self._number(wave, angles)


def _is_cut(value: Value) -> bool:
    """Whether no gradient flows from a value to what it is made of."""
    return value.op is not None and value.op.name == "aten.detach.default"


def _is_complex(value: Value) -> bool:
    return tensor_type(value).dtype.is_complex


def _is_one(arg: object) -> bool:
    return isinstance(arg, Value) and arg.op is not None and arg.op.name in ONES
