"""Keys and values of earlier tokens, followed from their inputs to where new ones join them, and to the outputs.

Only three things may happen to them: they are rearranged, new rows come behind them, and the whole is given back. New
rows come behind by concatenation, or by a write into a buffer at the positions of the new tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from attnc.compiler.derive.known import TOKEN_AXIS, Dims, Kind, Known, Role
from attnc.compiler.derive.past.axes import ALL, PLACES, PastAxes
from attnc.compiler.derive.past.cuts import bounds
from attnc.compiler.derive.past.order import like, order_of, rearranged
from attnc.compiler.derive.refusal import CACHE, NotDerivable
from attnc.compiler.derive.step import Step
from attnc.compiler.fuse.layout import tensor_type
from attnc.ir.types import same_dim
from attnc.ir.values import Arg, Value


@dataclass(frozen=True)
class Held:
    """A value that is a stream, its dimensions in another order: dimension d of it is ``order[d]`` of the stream's."""

    stream: Value
    order: tuple[int, ...]


@dataclass
class Streams:
    """What is known of the streams of one graph."""

    axes: PastAxes
    position: Callable[[Value], bool]
    """Whether a tensor [S] is proved to hold the positions of the new tokens."""
    past: dict[Value, Held] = field(default_factory=dict)
    """Values that are what came in."""
    whole: dict[Value, Held] = field(default_factory=dict)
    """Values that are what came in with the new rows behind it."""
    rows: dict[Value, Value] = field(default_factory=dict)
    """Of each value with new rows, or where they are copied to: these alone, as it is of a sequence without a past."""

    def begin(self, value: Value) -> Known:
        """An input that holds what earlier tokens left."""
        kind = tensor_type(value)
        self.past[value] = Held(value, tuple(range(kind.rank)))
        dims = self.axes.label(kind.shape)
        if dims is None:
            raise NotDerivable(CACHE, f"the past %{value.name} has a length of its own: {list(kind.shape)}")
        return Known(Kind.TOKEN, dims, Role.PAST, value)

    def visit(self, step: Step) -> Known | None:
        """What is known of the result of an op that reads a past, or a whole stream; None for any other op.

        Raises NotDerivable where something else is done to a past.
        """
        op = step.op
        first = op.args[0] if op.args else None
        name = op.name.rpartition(".")[0]
        if name == "aten.cat" and isinstance(first, tuple):
            return self._joined(step, first)
        if not isinstance(first, Value):
            return None
        if name == "aten.copy":
            return self._copied(step, first, op.args[1])
        if first in self.whole:
            self._follow(step, self.whole, first)
            if name == "aten.slice_scatter" and op.args[1] in self.whole:
                return self._put(step, first, op.args[1])
            return None
        if first not in self.past:
            return None
        return self._of_past(step, name, first)

    def _of_past(self, step: Step, name: str, first: Value) -> Known:
        """An op on a past."""
        known = step.facts[first]
        assert isinstance(known, Known)
        if self._follow(step, self.past, first):
            return rearranged(step, known)
        writes = {"aten.index_copy": self._copied_at, "aten.index_put": self._put_at, "aten.slice_scatter": self._put}
        if name in writes:
            return writes[name](step, first, step.op.args[1])
        if name == "aten.slice":
            return Known(Kind.TOKEN, step.label(), Role.PAST, known.source)
        raise step.refuse(CACHE, "keys or values of earlier tokens are computed with")

    def _follow(self, step: Step, held: dict[Value, Held], first: Value) -> bool:
        """Enter the result of an op that only rearranges; whether it is one."""
        order = order_of(step, first)
        if order is None:
            return False
        before = held[first]
        held[step.op.results[0]] = Held(before.stream, tuple(before.order[d] for d in order))
        return True

    # -- new rows

    def _joined(self, step: Step, parts: tuple[Arg, ...]) -> Known | None:
        """Earlier rows, then new ones."""
        values = [part for part in parts if isinstance(part, Value)]
        if not any(part in self.past for part in values):
            return None
        place = step.dim(1, "dim", len(step.shape))
        values = [part for part in values if tensor_type(part).shape[place] != 0]
        if len(values) != 2 or values[0] not in self.past:
            raise step.refuse(CACHE, "keys or values of earlier tokens don't come first, with the new ones behind them")
        past, new = values
        if not same_dim(tensor_type(past).shape[place], self.axes.earlier):
            raise step.refuse(CACHE, "something is concatenated with the past, but not along its tokens")
        return self._whole(step, self.past[past], new, place, ALL)

    def _copied_at(self, step: Step, first: Value, dim: Arg) -> Known:
        """``index_copy(buffer, dim, positions, rows)``."""
        place = step.dim(1, "dim", len(step.shape))
        index, rows = step.op.args[2:4]
        return self._written(step, first, place, index, rows)

    def _put_at(self, step: Step, first: Value, indices: Arg) -> Known:
        """``buffer[:, :, positions] = rows``."""
        assert isinstance(indices, tuple)
        given = [d for d, index in enumerate(indices) if index is not None]
        if len(given) != 1 or step.op.arg(3, "accumulate", False):
            raise step.refuse(CACHE, "a buffer is written at more than the tokens' places, or added to")
        return self._written(step, first, given[0], indices[given[0]], step.op.args[2])

    def _written(self, step: Step, first: Value, place: int, index: Arg, rows: Arg) -> Known:
        if not isinstance(index, Value) or not self.position(index):
            raise step.refuse(CACHE, "a buffer is written at places not proved to be the new tokens' positions")
        return self._buffer(step, first, rows, place)

    def _put(self, step: Step, first: Value, part: Arg) -> Known:
        """``buffer[:, :, P : P + S] = rows``; or a part that is all of the buffer."""
        assert isinstance(part, Value)
        held = self.past.get(first) or self.whole[first]
        place = step.dim(2, "dim", len(step.shape))
        lo, hi = bounds(step, 3)
        if step.op.arg(5, "step", 1) != 1 or lo is None or hi is None:
            raise step.refuse(CACHE, "a buffer is written in steps, or at places that are data")
        if self.whole.get(part) == held and lo == 0 and tensor_type(part).shape == step.shape:
            self.whole[step.op.results[0]] = held
            self.rows[step.op.results[0]] = part
            return step.fact(part)
        if not (same_dim(lo, self.axes.earlier) and same_dim(hi, self.axes.all)):
            raise step.refuse(CACHE, f"a buffer is written at {lo}:{hi}, not at the places of the new tokens")
        return self._buffer(step, first, part, place)

    def _buffer(self, step: Step, first: Value, rows: Arg, place: int) -> Known:
        """New rows in a buffer of fixed length."""
        length = tensor_type(first).shape[place]
        if first not in self.past or not isinstance(length, int):
            raise step.refuse(CACHE, "rows are written into a past of no fixed length, or a second time")
        return self._whole(step, self.past[first], rows, place, f"{PLACES}{length}")

    def _whole(self, step: Step, held: Held, rows: Arg, place: int, atom: str) -> Known:
        """The result, which holds a stream and its new rows."""
        result = step.op.results[0]
        assert isinstance(rows, Value)
        known = step.fact(rows)
        shape = list(step.shape)
        shape[place] = self.axes.tokens
        fits = len(known.dims) == len(shape) and known.dims[place] == (TOKEN_AXIS,) and known.kind is not Kind.LENGTH
        if not fits or known.role is not None or not like(rows, result, shape):
            raise step.refuse(CACHE, "what comes behind the past is no row of keys or values for each new token")
        self.whole[result], self.rows[result] = held, rows
        dims: Dims = (*known.dims[:place], (atom,), *known.dims[place + 1 :])
        return Known(Kind.TOKEN, dims)

    def _copied(self, step: Step, target: Value, source: Arg) -> Known | None:
        """``copy(part of a buffer, rows)``: the rows, whatever the part held."""
        known = step.facts[target]
        if not isinstance(known, Known) or known.role is not Role.PAST:
            return None
        assert isinstance(source, Value)
        if not like(source, target, list(tensor_type(target).shape)):
            raise step.refuse(CACHE, "what is copied into a buffer is of another shape or dtype")
        self.rows[step.op.results[0]] = source
        return step.fact(source)
