"""The lifter: abstract interpretation of a graph's integer, boolean and mask tensors.

A tensor is a function from coordinates to an index expression; :mod:`attnc.compiler.lift.rules` has one transfer
function per operator. Every formula is equal, element by element, to executing the operators, provided the program
raises no error when executed (an index out of bounds) and 64- and 32-bit integers do not wrap around.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import sympy
from sympy.logic.boolalg import Boolean

from attnc.compiler.lift.content import Formula, recognise
from attnc.compiler.lift.element import Choice, Coords, Element, Refused, as_cases, as_expr
from attnc.compiler.lift.exact import ANY, Interval, int_range
from attnc.compiler.lift.rules import RULES
from attnc.compiler.lift.scope import MAX_DEPTH, Scope, tensor
from attnc.ir.graph import Graph, SizeInfo
from attnc.ir.index import Ranges, axis
from attnc.ir.types import Dim, DType, size
from attnc.ir.values import Op, Value

Cases = tuple[tuple[Boolean, float], ...]
T = TypeVar("T")
Bound: TypeAlias = sympy.Expr | int | None


class Lifter:
    """Formulas of the tensors of one graph; remembers what it has computed, so the graph may not change meanwhile.

    The graph is functional: nothing but an input is written in place, and that after its last use.

    ``max_nodes`` caps the size of one element's expression. ``size_limit`` bounds the sizes for which the graph gives
    no bound; it is used only to prove that positions are exact in a float dtype.
    """

    def __init__(self, graph: Graph, *, max_nodes: int = 400, size_limit: int = 2**24) -> None:
        self.graph = graph
        self.max_nodes = max_nodes
        self.size_limit = size_limit
        self._scopes: dict[frozenset[object], Scope] = {}
        self._reasons: dict[Value, str] = {}
        self._contents: dict[str, Formula | None] = {}
        self._depth = 0
        self.loaded: dict[str, DType] = {}

    def index(self, value: Value, coords: Sequence[sympy.Expr], ranges: Ranges | None = None) -> sympy.Basic | None:
        """The element of ``value`` at ``coords`` (integer expressions, one per dimension), or None.

        ``value`` is a boolean tensor (the result is a truth value), an integer one, or a float one that holds only
        integers. Free symbols are those of ``coords`` and sizes; loads name graph inputs and values without a formula.
        Symbols among ``coords`` range over their dimension unless ``ranges`` (inclusive) says otherwise.
        """
        return self._attempt(value, coords, ranges, lambda e: as_expr(e) if isinstance(e, Choice) else e)

    def cases(self, value: Value, coords: Sequence[sympy.Expr], ranges: Ranges | None = None) -> Cases | None:
        """A tensor of few constants as (condition, value) pairs, the first that holds counts, the last always does.

        ``((k <= q, 0.0), (true, -inf))`` for a causal additive mask. None where some element is not a constant.
        Values are those of the tensor's dtype; zeros carry no sign.
        """
        return self._attempt(value, coords, ranges, as_cases)

    def reason(self, value: Value) -> str:
        """Why ``value`` has no formula: the operator, the user's file and line, and what stood in the way; else ''."""
        if value not in self._reasons:
            coords = tuple(axis(f"i{d}") for d in range(tensor(value).rank))
            if self.index(value, coords) is not None or self.cases(value, coords) is not None:
                return ""
        return self._reasons.get(value, "")

    def compute(self, scope: Scope, value: Value, coords: Coords) -> Element | str:
        """One element, or why there is none; not remembered. For scopes."""
        if value.op is None:
            return scope.load(value, coords)
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise Refused("too many operators deep")
            return self._apply(scope, value.op, coords)
        except Refused as refused:
            text = str(refused) if refused.located else f"{value.op.name} ({value.op.loc}): {refused}"
            self._reasons[value] = text
            return text
        finally:
            self._depth -= 1

    def _apply(self, scope: Scope, op: Op, coords: Coords) -> Element:
        rule = RULES.get(op.name)
        if rule is None:
            raise Refused("no transfer function")
        element = rule(scope, op, coords)
        if _nodes(element) > self.max_nodes:
            raise Refused(f"the formula has more than {self.max_nodes} nodes")
        return element

    def content(self, name: str) -> Formula | None:
        """The formula of a constant of the graph, None where its content follows none; looked at once."""
        if name not in self._contents:
            self._contents[name] = recognise(self.graph.constants.get(name))
        return self._contents[name]

    def size_bounds(self, symbol: sympy.Symbol) -> Interval:
        """Bounds of a named size, ``size_limit`` standing in for a missing one."""
        info = self.graph.sizes.get(symbol.name, SizeInfo())
        return info.lo, self.size_limit if info.hi is None else min(info.hi, self.size_limit)

    def load_bounds(self, name: str) -> Interval:
        """Bounds of the data of a loaded tensor, from its dtype; 64-bit data is unbounded."""
        dtype = self.loaded[name]
        return ANY if dtype.bits == 64 else int_range(dtype)

    def _attempt(
        self, value: Value, coords: Sequence[sympy.Expr], ranges: Ranges | None, read: Callable[[Element], T]
    ) -> T | None:
        """Read the element in the wanted form; None, with the reason kept, where there is none."""
        shape = tensor(value).shape
        if len(coords) != len(shape):
            raise ValueError(f"lifting %{value.name}: {len(coords)} coordinates for a tensor of rank {len(shape)}")
        where = tuple(sympy.sympify(c) for c in coords)
        scope = self._scope({**self._ranges(where, shape), **(ranges or {})})
        try:
            return read(scope.formula(value, where))
        except Refused as refused:
            self._reasons.setdefault(value, str(refused))
            return None

    def _ranges(self, coords: Coords, shape: Sequence[Dim]) -> dict[sympy.Symbol, tuple[Bound, Bound]]:
        """Sizes as the graph bounds them; symbols among the coordinates range over their dimension."""
        ranges: dict[sympy.Symbol, tuple[Bound, Bound]] = {
            size(name): (info.lo, info.hi) for name, info in self.graph.sizes.items()
        }
        for coordinate, length in zip(coords, shape, strict=True):
            if isinstance(coordinate, sympy.Symbol) and coordinate not in ranges and length != 1:
                ranges[coordinate] = (0, length - 1)
        return ranges

    def _scope(self, ranges: Ranges) -> Scope:
        key = frozenset(ranges.items())
        if key not in self._scopes:
            self._scopes[key] = Scope(self, ranges)
        return self._scopes[key]


def _nodes(element: Element) -> int:
    """Nodes of an element's expressions, counted as a tree."""
    if not isinstance(element, Choice):
        return _size(element)
    return sum(_size(c) + (0 if isinstance(v, float) else _size(v)) for c, v in element.branches)


def _size(expr: sympy.Basic) -> int:
    return sum(1 for _ in sympy.preorder_traversal(expr))
