"""What a rule sees of one op: what is known of its operands, its arguments, and how to refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from attnc.compiler.derive.axes import Axes
from attnc.compiler.derive.known import Dims, Kind, Known
from attnc.compiler.derive.refusal import NO_RULE, NotDerivable
from attnc.ir.types import Dim, ScalarType, TensorType, TupleType
from attnc.ir.values import Arg, Op, Value, walk_values

Fact = Known | tuple[Known, ...] | NotDerivable
"""Of one value: what is known, of each part of a tuple, or why nothing is."""


@dataclass(frozen=True)
class Step:
    """One op under analysis."""

    op: Op
    axes: Axes
    facts: Mapping[Value, Fact]

    # -- operands

    def fact(self, value: Arg) -> Known:
        """What is known of a tensor. Raises NotDerivable with the first reason where nothing is."""
        assert isinstance(value, Value), f"{self.op.name}: a tensor was expected, not {value!r}"
        found = self.facts[value]
        if isinstance(found, NotDerivable):
            raise found
        assert isinstance(found, Known), f"%{value.name} is a tuple"
        return found

    def tensor(self, position: int, keyword: str = "self") -> Known:
        """What is known of the operand at a place or under a keyword."""
        return self.fact(self.op.arg(position, keyword))

    def tensors(self) -> list[Known]:
        """What is known of every tensor operand, in order."""
        return [self.fact(v) for v in self.op.operands if isinstance(v.type, TensorType)]

    def constant(self, position: int, keyword: str, default: Arg = None) -> Arg:
        """An argument that is no value. Raises NotDerivable for one that is computed."""
        arg = self.op.arg(position, keyword, default)
        if any(True for _ in walk_values(arg)):
            raise self.refuse(NO_RULE, f"its argument {keyword!r} is computed")
        return arg

    def dim(self, position: int, keyword: str, rank: int, default: int = 0) -> int:
        """A dimension argument, counted from the front."""
        found = self.constant(position, keyword, default)
        assert isinstance(found, int)
        return found % rank if rank else 0

    def dims(self, position: int, keyword: str, rank: int) -> tuple[int, ...]:
        """A list of dimensions, counted from the front; absent or empty means all."""
        found = self.constant(position, keyword)
        if isinstance(found, int):
            return (found % rank,)
        return tuple(int(d) % rank for d in found) if isinstance(found, tuple) and found else tuple(range(rank))  # type: ignore[arg-type]

    def length(self, arg: Arg) -> Dim | None:
        """A length argument as an expression; None where it isn't known."""
        if isinstance(arg, Value):
            found = arg.type.expr if isinstance(arg.type, ScalarType) else None
            return None if found is None else self.axes.simplified(found)
        return arg if isinstance(arg, int) else None

    def sized_scalars(self) -> list[Value]:
        """Scalar operands that are computed from sizes, not constants."""
        return [v for v in self.op.operands if isinstance(v.type, ScalarType) and not isinstance(v.type.expr, int)]

    def kind_of_sizes(self) -> Kind:
        """What numbers that are computed from sizes depend on, those among the operands."""
        lengths = [v.type.expr for v in self.sized_scalars() if isinstance(v.type, ScalarType)]
        if not lengths:
            return Kind.UNIFORM
        return Kind.REQUEST if all(e is not None and self.axes.is_encoder(e) for e in lengths) else Kind.LENGTH

    # -- results

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape of the result, or of the first result of several."""
        return self.shapes[0]

    @property
    def shapes(self) -> tuple[tuple[Dim, ...], ...]:
        """The shape of each result."""
        kind = self.op.results[0].type
        parts = kind.elements if isinstance(kind, TupleType) else (kind,)
        return tuple(tuple(map(self.axes.simplified, p.shape)) for p in parts if isinstance(p, TensorType))

    def label(self, shape: tuple[Dim, ...] | None = None) -> Dims:
        """Axes read off a shape. Raises NotDerivable where a dimension is neither a literal nor a named size."""
        found = self.axes.label(self.shape if shape is None else shape)
        if found is None:
            raise self.refuse(NO_RULE, f"a result of shape {list(self.shape if shape is None else shape)}")
        return found

    def refuse(self, code: str, reason: str) -> NotDerivable:
        """The refusal of this op, to be raised."""
        return NotDerivable(code, reason, self.op)

    def kind(self, operands: list[Known]) -> Kind:
        """What a result depends on that depends on these."""
        return max((known.kind for known in operands), default=Kind.UNIFORM)


Rule = Callable[[Step], Known | tuple[Known, ...]]
