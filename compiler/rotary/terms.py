"""Terms: a value, feature by feature, as Σ coefficient · wave · x[feature], with x not chosen beforehand.

The value starts as 1 · itself. The term whose tensor is computed last is expanded by its op, again and again, so the
first tensor that all terms share is the nearest one: the x of the rotation, if it is one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from attnc.compiler.fuse.axes import Axis, Coords, broadcast, equal, is_one, resolve
from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.fuse.pointwise import BINARY, CASTS, is_plain_cast
from attnc.compiler.rotary.angles import NEGATIONS
from attnc.compiler.rotary.reads import Lanes, NotRotation, Read
from attnc.compiler.rotary.rearranging import sources
from attnc.compiler.rotary.waves import Wave, Waves
from attnc.ir.values import Arg, Op, Value

CUTS = frozenset(("aten.detach.default", "aten.lift_fresh_copy.default"))
"""x is their result, never what is behind them: no gradient passes."""
COPIES = frozenset(("aten.clone.default", "aten.contiguous.default"))
MAX_FEATURES = 1024
MAX_TERMS = 32


@dataclass(frozen=True, eq=False)
class Term:
    """``coefficient`` times a wave (``kind``, ``angle``) times one element of x; arrays over lanes."""

    read: Read
    coefficient: NDArray[np.float64]
    kind: Lanes
    angle: Lanes

    @property
    def is_plain(self) -> bool:
        return not self.kind[self.read.chosen].any()


@dataclass
class Expansion:
    """The terms of one value; ``met`` are the ops that made them, ``origin`` an op that made a wave, if one did.

    ``is_complex``: x may be viewed as complex numbers, as the source does.
    """

    root: Value
    lead: Coords
    terms: list[Term]
    met: set[Op] = field(default_factory=set)
    origin: Op | None = None
    has_waves: bool = False
    is_complex: bool = False

    @staticmethod
    def of(root: Value) -> Expansion:
        """The value as itself. Raises NotRotation where its last dimension can't be enumerated."""
        shape = tensor_type(root).shape
        features = shape[-1] if shape else 0
        if not isinstance(features, int) or not 2 <= features <= MAX_FEATURES or tensor_type(root).dtype.is_complex:
            raise NotRotation(f"%{root.name} has no dimension of features")
        axes = [Axis(n) for n in shape]
        coords = tuple(() if is_one(axis.length) else (axis,) for axis in axes)
        read = Read(root, coords, np.ones(features, np.bool_), {axes[-1]: np.arange(features)})
        none = np.zeros(features, np.int64)
        return Expansion(root, coords[:-1], [Term(read, np.ones(features), none, none)])

    def shared(self) -> Value | None:
        """The tensor all terms read, feature by feature where the root has them; None while there are several."""
        first = self.terms[0].read.value
        if first is self.root or any(term.read.value is not first for term in self.terms):
            return None
        kind, wanted = tensor_type(first), tensor_type(self.root).shape[:-1]
        aligned = kind.rank == len(wanted) + 1 and all(map(equal, kind.shape, wanted))
        return first if aligned and all(self._is_aligned(term.read) for term in self.terms) else None

    def _is_aligned(self, read: Read) -> bool:
        return read.coords[:-1] == resolve(self.lead) and read.index(len(read.coords) - 1) is not None


@dataclass
class Expander:
    """Expands terms. ``order`` numbers ops as they are executed; ``marked`` are values already known to hold waves."""

    waves: Waves
    order: Mapping[Op, int]
    marked: Collection[Value]
    turned: Collection[Value]
    """Values some of whose elements are negated: the other factor of a product with one is taken for the wave."""
    given: Collection[Value] = ()
    """Values that may be waves, given as inputs."""

    def step(self, expansion: Expansion) -> bool:
        """Expand the terms of the tensor computed last; False where that can't be. Raises NotRotation."""
        last = max(expansion.terms, key=lambda term: self._when(term.read.value)).read.value
        op = last.op
        if op is None or op.name in CUTS or len(expansion.terms) > MAX_TERMS:
            return False
        if (op in self.waves.unrecorded) != (expansion.root.op in self.waves.unrecorded):
            return False
        terms: list[Term] = []
        for term in expansion.terms:
            if term.read.value is not last:
                terms.append(term)
                continue
            found = self._expanded(expansion, term, op)
            if found is None:
                return False
            terms += found
        expansion.is_complex &= op.name not in COPIES
        expansion.met.add(op)
        expansion.terms = [replace(term, read=term.read.fresh()) for term in terms]
        return True

    def _when(self, value: Value) -> int:
        return -1 if value.op is None else self.order[value.op]

    def _expanded(self, expansion: Expansion, term: Term, op: Op) -> list[Term] | None:
        pieces = sources(term.read)
        if pieces is not None:
            return [replace(term, read=piece) for piece in pieces]
        kind = BINARY.get(op.name, "")
        first, second = op.arg(0, "self"), op.arg(1, "other")
        if op.name in NEGATIONS:
            return [self._operand(term, first, -1.0)]
        if op.name in CASTS and is_plain_cast(op) and _keeps_dtype(op):
            return [self._operand(term, first)]
        if kind in ("add", "sub") and op.arg(2, "alpha", 1) == 1 and _tensors(first, second):
            return [self._operand(term, first), self._operand(term, second, 1.0 if kind == "add" else -1.0)]
        if kind in ("mul", "div") and isinstance(first, Value) and isinstance(second, int | float) and second:
            return [self._operand(term, first, float(second) if kind == "mul" else 1 / second)]
        if kind == "mul" and isinstance(first, Value) and isinstance(second, Value) and term.is_plain:
            return self._product(expansion, term, first, second)
        return None

    def _operand(self, term: Term, arg: Arg, factor: float = 1.0) -> Term:
        """The term read from an operand of a pointwise op, where that broadcasts."""
        assert isinstance(arg, Value)
        kind, rank = tensor_type(arg), tensor_type(term.read.value).rank
        read = term.read.moved(arg, broadcast(term.read.coords[:rank], kind.shape))
        return replace(term, read=read, coefficient=term.coefficient * factor)

    def _product(self, expansion: Expansion, term: Term, first: Value, second: Value) -> list[Term] | None:
        """x times a wave; which of the two is the wave was marked beforehand. Two given ones leave it open."""
        if second in self.marked or (first in self.turned and first not in self.marked):
            x, wave = first, second
        elif first in self.marked or second in self.turned:
            x, wave = second, first
        elif (first in self.given) != (second in self.given):
            x, wave = (second, first) if first in self.given else (first, second)
        else:
            return None
        coords = term.read.coords[: tensor_type(term.read.value).rank]
        features = len(coords) - len(expansion.lead)
        if features < 1 or coords[: len(expansion.lead)] != resolve(expansion.lead):
            return None
        numbers = [n for n in map(term.read.number, coords[len(expansion.lead) :]) if n is not None]
        if len(numbers) < features:
            return None
        held = self.waves.of(wave, min(features, tensor_type(wave).rank))
        expansion.origin, expansion.has_waves = held.origin, True
        reads = self._operand(term, x)
        if not tensor_type(x).dtype.is_complex:
            return [_times(reads, held, numbers)]
        expansion.is_complex = True
        return _complex_product(reads, held, numbers)


def _complex_product(term: Term, wave: Wave, numbers: list[Lanes]) -> list[Term]:
    """(x + iy)(c + is) = (xc − ys) + i(xs + yc): component b of x meets component b ⊕ c of the wave in component c."""
    component, coords = term.read.component(), term.read.coords[:-1]
    terms = []
    for part in (0, 1):
        axis = Axis(2)
        chosen = {**term.read.numbers, axis: np.full_like(component, part)}
        read = Read(term.read.value, (*coords, (axis,)), term.read.chosen, chosen)
        other = (component + part) % 2
        sign = np.where((component == 0) & (part == 1), -1.0, 1.0)
        moved = replace(term, read=read, coefficient=term.coefficient * sign)
        terms.append(_times(moved, wave, [*numbers, other]))
    return terms


def _times(term: Term, wave: Wave, numbers: list[Lanes]) -> Term:
    """The term times the elements of a wave at these indices of its feature dimensions."""
    kept = numbers[len(numbers) - len(wave.shape) :]
    at = np.zeros(len(term.coefficient), np.int64)
    for index, length in zip(kept, wave.shape, strict=True):
        at = at * length + (0 if length == 1 else index)
    at = np.where(term.read.chosen, at, 0)
    return replace(term, coefficient=term.coefficient * wave.factor[at], kind=wave.kind[at], angle=wave.angle[at])


def _tensors(*args: Arg) -> bool:
    return all(isinstance(arg, Value) and tensor_type(arg).rank > 0 for arg in args)


def _keeps_dtype(op: Op) -> bool:
    return isinstance(op.args[0], Value) and tensor_type(op.args[0]).dtype is tensor_type(op.result).dtype
