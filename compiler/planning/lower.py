"""Formulas to programs: index expressions and score DAGs become straight-line code with shared subexpressions."""

from __future__ import annotations

from typing import Any

import sympy
from sympy.core.relational import Relational

from attnc.codegen.plan import Instr, Program
from attnc.ir.index_terms import Load, is_size, ratio, sides
from attnc.ir.score_nodes import Node
from attnc.ir.score_rewrite import walk

_CHAINS: tuple[tuple[type[sympy.Basic], str, str], ...] = (
    (sympy.Min, "min", "i64"),
    (sympy.Max, "max", "i64"),
    (sympy.And, "and", "b1"),
    (sympy.Or, "or", "b1"),
)
_RELATIONS: dict[type[Relational], str] = {
    sympy.StrictLessThan: "lt",
    sympy.LessThan: "le",
    sympy.StrictGreaterThan: "gt",
    sympy.GreaterThan: "ge",
    sympy.Equality: "eq",
    sympy.Unequality: "ne",
}


def lower(formula: Node | sympy.Basic) -> Program:
    """The program of a score node or of an index expression (integers ``i64``, conditions ``b1``).

    Side operands must be named ``t0``, ``t1``, …; integer and boolean ones are loaded as ``i64``. Raises ValueError for
    another name, and for an expression that is no integer (a fraction outside floor and comparisons).
    """
    lowering = _Lowering()
    if isinstance(formula, Node):
        lowering.node(formula)
    else:
        lowering.index(sympy.sympify(formula))
    return tuple(lowering.program)


class _Lowering:
    def __init__(self) -> None:
        self.program: list[Instr] = []
        self.known: dict[Any, int] = {}
        self.exprs: dict[sympy.Basic, int] = {}

    def emit(self, op: str, dtype: str, args: tuple[int, ...] = (), value: Any = None) -> int:
        """The index of this instruction; an equal earlier one is used again."""
        key = (op, dtype, args, repr(value))
        if key not in self.known:
            self.known[key] = len(self.program)
            self.program.append(Instr(op, dtype, args, value))
        return self.known[key]

    def finish(self, result: int) -> None:
        """Keep only what ``result`` needs, so that it is last."""
        needed = {result}
        for position in range(result, -1, -1):
            if position in needed:
                needed.update(self.program[position].args)
        order = {old: new for new, old in enumerate(sorted(needed))}
        kept = (self.program[old] for old in order)
        self.program = [Instr(i.op, i.dtype, tuple(order[a] for a in i.args), i.value) for i in kept]

    def node(self, root: Node) -> None:
        places: dict[Node, int] = {}
        for node in walk(root):
            places[node] = self._node(node, tuple(places[a] for a in node.args))
        self.finish(places[root])

    def _node(self, node: Node, args: tuple[int, ...]) -> int:
        dtype = node.dtype.value
        if node.op == "index":
            place = self._index(node.value)
            exact = self.program[place].dtype
            return place if exact == dtype else self.emit("cast", dtype, (place,))
        if node.op == "load":
            name, indices = node.value
            return self.emit("load", dtype, tuple(self._index(i) for i in indices), side_number(name))
        return self.emit(node.op, dtype, args, node.value)

    def index(self, expr: sympy.Basic) -> None:
        self.finish(self._index(expr))

    def _index(self, expr: sympy.Basic) -> int:
        if expr not in self.exprs:
            self.exprs[expr] = self._lower(expr)
        return self.exprs[expr]

    def _lower(self, expr: sympy.Basic) -> int:
        if expr in (sympy.true, sympy.false):
            return self.emit("const", "b1", (), bool(expr))
        if isinstance(expr, sympy.Integer):
            return self.emit("const", "i64", (), int(expr))
        if isinstance(expr, sympy.Symbol):
            return self.emit("size" if is_size(expr) else "axis", "i64", (), expr.name)
        if isinstance(expr, Load):
            return self.emit("load", "i64", tuple(self._index(i) for i in expr.indices), side_number(expr.name))
        if isinstance(expr, Relational):
            left, right = sides(expr)
            return self.emit(_RELATIONS[type(expr)], "b1", (self._index(left), self._index(right)))
        if isinstance(expr, sympy.ITE):
            return self.emit("where", "b1", tuple(self._index(a) for a in expr.args))
        if isinstance(expr, sympy.Not):
            return self.emit("not", "b1", (self._index(expr.args[0]),))
        if isinstance(expr, sympy.Add):
            return self._sum(expr)
        if isinstance(expr, sympy.Piecewise) and expr.args[-1][1] == sympy.true:
            return self._piecewise(expr)
        for kind, op, dtype in _CHAINS:
            if isinstance(expr, kind):
                return self._chain(op, dtype, sorted(expr.args, key=str))
        return self._product(expr)

    def _chain(self, op: str, dtype: str, args: list[sympy.Basic]) -> int:
        place = self._index(args[0])
        for arg in args[1:]:
            place = self.emit(op, dtype, (place, self._index(arg)))
        return place

    def _sum(self, expr: sympy.Add) -> int:
        """Positive terms first, then differences: ``a + b - c``."""
        terms = sorted(expr.args, key=lambda t: (t.could_extract_minus_sign(), t.is_number, str(t)))
        place = self._index(terms[0])
        for term in terms[1:]:
            negative = term.could_extract_minus_sign()
            place = self.emit("sub" if negative else "add", "i64", (place, self._index(-term if negative else term)))
        return place

    def _piecewise(self, expr: sympy.Piecewise) -> int:
        place = self._index(expr.args[-1][0])
        for value, condition in reversed(expr.args[:-1]):
            dtype = self.program[place].dtype
            place = self.emit("where", dtype, (self._index(condition), self._index(value), place))
        return place

    def _product(self, expr: sympy.Basic) -> int:
        """Products, powers, floor, Mod and abs."""
        if isinstance(expr, sympy.Mul) and all(f.is_integer for f in expr.args):
            if expr.args[0] == -1:
                return self.emit("neg", "i64", (self._index(-expr),))
            return self._chain("mul", "i64", sorted(expr.args, key=lambda f: (f.is_number, str(f))))
        if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and expr.exp > 1:
            return self._chain("mul", "i64", [expr.base] * int(expr.exp))
        if isinstance(expr, sympy.floor):
            top, bottom = ratio(expr.args[0])
            return self.emit("floordiv", "i64", (self._index(top), self._index(bottom)))
        if isinstance(expr, sympy.Mod):
            return self.emit("mod", "i64", tuple(self._index(a) for a in expr.args))
        if isinstance(expr, sympy.Abs):
            return self.emit("abs", "i64", (self._index(expr.args[0]),))
        raise ValueError(f"lowering {expr}: not an integer expression ({type(expr).__name__})")


def side_number(name: str) -> int:
    """3 for ``t3``. Raises ValueError for any other form of name."""
    if not (name.startswith("t") and name[1:].isdecimal()):
        raise ValueError(f"lowering a load of {name!r}: side operands are named t0, t1, …")
    return int(name[1:])
