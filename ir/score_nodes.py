"""Score formulas: a typed, hash-consed DAG with as-written float semantics.

Equal nodes are one object. Constructors keep three invariants, so that one formula has one DAG and one text:
operands of arithmetic, comparisons and ``where`` have one dtype (casts are inserted, as torch promotes);
integer and boolean formulas over indices are one ``index`` node, as large as possible; a cast to the same dtype is
no node. No constructor reassociates, distributes or folds floats.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy

from attnc.ir import index_terms as ix
from attnc.ir.types import DType

FUNCTIONS = (
    "neg", "abs", "tanh", "exp", "exp2", "log", "sqrt", "rsqrt", "sigmoid", "erf", "floor", "ceil", "sin", "cos",
    "isnan",
)  # fmt: skip
ARITHMETIC = ("add", "sub", "mul", "div", "min", "max", "pow", "floordiv", "mod")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
LOGIC = ("and", "or", "not")


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Node:
    """One operation: op names as in ``codegen.plan.Instr``, and ``index`` (a sympy value, see ``ir.index``).

    ``value``: the number of a ``const``, ``(side name, index expressions)`` of a ``load``, the
    expression of an ``index``.
    """

    op: str
    dtype: DType
    args: tuple[Node, ...] = ()
    value: Any = None

    def __repr__(self) -> str:
        """One node only: the text of a formula is ``score.show``."""
        value = "" if self.value is None else f", {self.value}"
        return f"Node({self.op}, {self.dtype.value}, {len(self.args)} args{value})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _node, (self.op, self.dtype, self.args, self.value)


_INTERNED: weakref.WeakValueDictionary[Any, Node] = weakref.WeakValueDictionary()


def _node(op: str, dtype: DType, args: tuple[Node, ...] = (), value: Any = None) -> Node:
    key = (op, dtype, args, repr(value) if op == "const" else value)
    node = _INTERNED.get(key)
    if node is None:
        node = _INTERNED[key] = Node(op, dtype, args, value)
    return node


def qk(dtype: DType) -> Node:
    """Σ_d q·k of this query and key, as ``dtype``."""
    return _node("qk", dtype)


def const(value: int | float | bool, dtype: DType) -> Node:
    """A number, rounded to ``dtype`` when evaluated. Raises ValueError for a float in an integer dtype."""
    if dtype.is_float:
        value = float(value)
    elif dtype is DType.B1:
        value = bool(value)
    elif int(value) == value:
        value = int(value)
    else:
        raise ValueError(f"const {value!r} is no {dtype.value}")
    return _node("const", dtype, (), value)


def load(name: str, indices: tuple[sympy.Expr | int, ...], dtype: DType) -> Node:
    """One element of side operand ``name``, stored as ``dtype``; integer and boolean ones become ``index`` nodes."""
    if dtype.is_float:
        return _node("load", dtype, (), (name, tuple(sympy.sympify(i) for i in indices)))
    element = ix.load(name, *indices)
    return index(sympy.Ne(element, 0), DType.B1) if dtype is DType.B1 else index(element, dtype)


def index(expr: Any, dtype: DType) -> Node:
    """The value of an index expression cast to ``dtype``; conditions are B1. Numbers become ``const``."""
    expr = sympy.sympify(expr)
    if ix.is_boolean(expr):
        node = const(bool(expr), DType.B1) if expr in (sympy.true, sympy.false) else _node("index", DType.B1, (), expr)
        return cast(node, dtype)
    if dtype is DType.B1:
        return index(sympy.Ne(expr, 0), dtype)
    return const(int(expr), dtype) if expr.is_Integer else _node("index", dtype, (), expr)


def promote(x: DType, y: DType) -> DType:
    """torch's result dtype of two tensors' dtypes. Raises ValueError for complex and float8."""
    for dtype in (x, y):
        if dtype.is_complex or dtype.value.startswith("f8"):
            raise ValueError(f"no arithmetic on {dtype.value} in a score")
    if x is y:
        return x
    if x.is_float != y.is_float:
        return x if x.is_float else y
    if x.is_float and x.bits == y.bits:
        return DType.F32
    if DType.B1 in (x, y):
        return y if x is DType.B1 else x
    if x.is_int and x.value[0] != y.value[0]:
        signed, unsigned = (x, y) if x.value[0] == "i" else (y, x)
        return signed if signed.bits > unsigned.bits else DType(f"i{min(2 * unsigned.bits, 64)}")
    return x if x.bits > y.bits else y


def cast(x: Node, dtype: DType) -> Node:
    """``x`` converted to ``dtype`` (round to nearest even; truncation to integers; ≠ 0 to booleans)."""
    if x.dtype is dtype:
        return x
    if dtype is DType.B1:
        return compare("ne", x, const(0, x.dtype))
    if _is_integer(x):
        return index(_expr(x), dtype)
    if x.op == "const" and x.dtype is DType.B1:
        return const(x.value, dtype)
    return _node("cast", dtype, (x,))


def unary(op: str, x: Node) -> Node:
    """A function of one operand; integers are cast to f32 first, but for neg and abs. ``isnan`` gives B1."""
    if op not in FUNCTIONS:
        raise ValueError(f"unknown function {op!r}")
    if op in ("neg", "abs") and x.dtype.is_int:
        if _is_integer(x):
            return index(-_expr(x) if op == "neg" else sympy.Abs(_expr(x)), DType.I64)
        return _node(op, x.dtype, (x,))
    if not x.dtype.is_float:
        x = cast(x, DType.F32)
    return _node(op, DType.B1 if op == "isnan" else x.dtype, (x,))


_EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "min": sympy.Min,
    "max": sympy.Max,
    "floordiv": lambda x, y: sympy.floor(x / y),
    "mod": sympy.Mod,
    "lt": sympy.Lt,
    "le": sympy.Le,
    "gt": sympy.Gt,
    "ge": sympy.Ge,
    "eq": sympy.Eq,
    "ne": sympy.Ne,
    "and": sympy.And,
    "or": sympy.Or,
}


def binary(op: str, x: Node, y: Node, dtype: DType | None = None) -> Node:
    """An arithmetic node; both operands are cast to ``dtype``, by default the promotion of theirs (f32 for ``div`` of
    integers). Raises ValueError for booleans.
    """
    if op not in ARITHMETIC:
        raise ValueError(f"unknown operation {op!r}")
    dtype = dtype or promote(x.dtype, y.dtype)
    if op == "div" and dtype.is_int:
        dtype = DType.F32
    if dtype is DType.B1:
        raise ValueError(f"{op} of booleans: cast them, or use logical()")
    x, y = cast(x, dtype), cast(y, dtype)
    if op in _EXACT and _is_integer(x) and _is_integer(y) and not (op in ("floordiv", "mod") and _expr(y) == 0):
        return index(_EXACT[op](_expr(x), _expr(y)), DType.I64)
    return _node(op, dtype, (x, y))


def compare(op: str, x: Node, y: Node) -> Node:
    """A comparison (B1), operands promoted to one dtype; ``eq`` and ``ne`` of booleans become logic."""
    if op not in COMPARISONS:
        raise ValueError(f"unknown comparison {op!r}")
    dtype = promote(x.dtype, y.dtype)
    if dtype is DType.B1:
        if op not in ("eq", "ne"):
            return compare(op, cast(x, DType.I64), cast(y, DType.I64))
        either = logical("and", logical("or", x, y), logical("not", logical("and", x, y)))
        return either if op == "ne" else logical("not", either)
    x, y = cast(x, dtype), cast(y, dtype)
    if _is_integer(x) and _is_integer(y):
        return index(_EXACT[op](_expr(x), _expr(y)), DType.B1)
    return _node(op, DType.B1, (x, y))


def logical(op: str, *xs: Node) -> Node:
    """``and``, ``or`` of any number of operands, ``not`` of one; operands that are no booleans are compared with 0."""
    if op not in LOGIC or not xs or (op == "not" and len(xs) > 1):
        raise ValueError(f"logical {op!r} of {len(xs)} operands")
    nodes = [cast(x, DType.B1) for x in xs]
    if op == "not":
        return (
            index(sympy.Not(_expr(nodes[0])), DType.B1)
            if _is_condition(nodes[0])
            else _node("not", DType.B1, (nodes[0],))
        )
    result = nodes[0]
    for node in nodes[1:]:
        if _is_condition(result) and _is_condition(node):
            result = index(_EXACT[op](_expr(result), _expr(node)), DType.B1)
        else:
            result = _node(op, DType.B1, (result, node))
    return result


def where(condition: Node, then: Node, otherwise: Node) -> Node:
    """``then`` where ``condition`` holds (if no B1: isn't 0), else ``otherwise``; branches promoted to one dtype."""
    condition, dtype = cast(condition, DType.B1), promote(then.dtype, otherwise.dtype)
    then, otherwise = cast(then, dtype), cast(otherwise, dtype)
    exact = _is_integer if dtype is DType.I64 else _is_condition
    if _is_condition(condition) and exact(then) and exact(otherwise):
        return index(ix.where(_expr(condition), _expr(then), _expr(otherwise)), dtype)
    return _node("where", dtype, (condition, then, otherwise))


def _is_integer(x: Node) -> bool:
    return x.op in ("index", "const") and x.dtype is DType.I64


def _is_condition(x: Node) -> bool:
    return x.op in ("index", "const") and x.dtype is DType.B1


def _expr(x: Node) -> Any:
    """The sympy value of an exact node."""
    return sympy.sympify(x.value)
