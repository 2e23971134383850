"""The text of score formulas: ``where((k <= q), tanh(qk * 0.125 / 50.0) * 50.0, f32(-inf))``.

Exact: the text and the dtypes of ``qk`` and of the side operands give the same node back. A dtype shows only where it
can't be read off: casts are calls (``f32(x)``), a bare number has the dtype of its sibling operand, else it's written
``f32(0.5)``. Integer and boolean parts are index formulas (see ``ir.index_text``): ``f32(k - q)`` is an integer
difference made f32.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Mapping

import sympy

from attnc.ir import index_terms as ix
from attnc.ir import index_text
from attnc.ir import score_nodes as sn
from attnc.ir.index_text import AND, ATOM, COMPARE, OR, PRODUCT, SUM, UNARY
from attnc.ir.score_nodes import Node
from attnc.ir.score_rewrite import walk
from attnc.ir.types import DType

_INFIX = {
    "or": ("|", OR), "and": ("&", AND),
    "lt": ("<", COMPARE), "le": ("<=", COMPARE),
    "gt": (">", COMPARE), "ge": (">=", COMPARE), "eq": ("==", COMPARE), "ne": ("!=", COMPARE),
    "add": ("+", SUM), "sub": ("-", SUM),
    "mul": ("*", PRODUCT), "div": ("/", PRODUCT), "floordiv": ("//", PRODUCT), "mod": ("%", PRODUCT),
}  # fmt: skip
_DTYPES = {dtype.value: dtype for dtype in DType}
_SPECIAL = {"inf": math.inf, "nan": math.nan}


def show(root: Node) -> str:
    """The formula of a score, with few parentheses."""
    texts: dict[Node, tuple[str, int]] = {}
    for node in walk(root):
        texts[node] = _text(node, texts)
    return texts[root][0]


def _number(node: Node) -> str:
    return repr(node.value)


def _typed(node: Node) -> str:
    """A constant that says its dtype; booleans and i64 need not."""
    return _number(node) if node.dtype in (DType.B1, DType.I64) else f"{node.dtype.value}({_number(node)})"


def _text(node: Node, texts: Mapping[Node, tuple[str, int]]) -> tuple[str, int]:
    def at(child: Node, strength: int, sibling: Node | None = None, parens: int = 0) -> str:
        if child.op == "const":
            if sibling is None or sibling.op == "const":
                return _typed(child)
            text, bound = _number(child), UNARY if _number(child).startswith("-") else ATOM
        else:
            text, bound = texts[child]
        return text if bound >= strength and bound != parens else f"({text})"

    match node.op, node.args:
        case "const", ():
            return _typed(node), ATOM
        case "qk", ():
            return "qk", ATOM
        case "load", ():
            name, indices = node.value
            return f"{name}[{', '.join(map(index_text.show, indices))}]", ATOM
        case "index", ():
            if node.dtype in (DType.I64, DType.B1):
                return index_text.shown(node.value)
            return f"{node.dtype.value}({index_text.show(node.value)})", ATOM
        case "cast", (x,):
            return f"{node.dtype.value}({at(x, 0)})", ATOM
        case "neg", (x,):
            return f"-{at(x, UNARY)}", UNARY
        case "not", (x,):
            return f"~{at(x, ATOM)}", UNARY
        case op, (x, y) if op in ("and", "or"):
            strength = _INFIX[op][1]
            left, right = at(x, strength, parens=COMPARE), at(y, strength + 1, parens=COMPARE)
            return f"{left} {_INFIX[op][0]} {right}", strength
        case op, (x, y) if op in _INFIX:
            sign, strength = _INFIX[op]
            loose = SUM if strength == COMPARE else strength
            return f"{at(x, loose, y)} {sign} {at(y, max(loose, strength + 1), x)}", strength
        case "pow", (x, y):
            return f"{at(x, ATOM, y)} ** {at(y, ATOM, x)}", UNARY
        case "where", (condition, x, y):
            return f"where({at(condition, 0)}, {at(x, 0, y)}, {at(y, 0, x)})", ATOM
        case op, (x, y):
            return f"{op}({at(x, 0, y)}, {at(y, 0, x)})", ATOM
        case op, (x,):
            return f"{op}({at(x, 0)})", ATOM
    raise ValueError(f"no text for {node.op}")


def parse(text: str, dtypes: Mapping[str, DType], axes: Collection[str] = (), sizes: Collection[str] = ()) -> Node:
    """The node that :func:`show` wrote. ``dtypes``: of ``qk`` and of each side operand.

    Raises ValueError, naming the place, on a syntax error, an unknown name, or a number without a dtype.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"reading score {text!r}: {error.msg} at column {error.offset}") from error
    return _Parser(text.strip(), dtypes, frozenset(axes), frozenset(sizes)).typed(tree)


class _Parser:
    def __init__(self, text: str, dtypes: Mapping[str, DType], axes: Collection[str], sizes: Collection[str]) -> None:
        self.text, self.dtypes, self.axes, self.sizes = text, dtypes, axes, sizes

    def fail(self, tree: ast.expr, reason: str) -> ValueError:
        return ValueError(f"reading score {self.text!r}: {ast.unparse(tree)!r} at column {tree.col_offset} {reason}")

    def is_exact(self, tree: ast.expr) -> bool:
        """True for a subtree that is one index formula: integer and boolean operations over indices."""
        match tree:
            case ast.Constant(value=value):
                return isinstance(value, int)
            case ast.Name(id=name):
                return name in self.axes or name in self.sizes
            case ast.Subscript(value=ast.Name(id=name)):
                return name in self.dtypes and not self.dtypes[name].is_float
            case ast.UnaryOp(operand=operand):
                return self.is_exact(operand)
            case ast.BinOp(left=left, op=op, right=right):
                return type(op) in index_text.BINARY and self.is_exact(left) and self.is_exact(right)
            case ast.Compare(left=left, comparators=[right]):
                return self.is_exact(left) and self.is_exact(right)
            case ast.Call(func=ast.Name(id=name), args=args):
                return name in index_text.CALLS and all(map(self.is_exact, args))
        return False

    def index(self, tree: ast.expr) -> sympy.Basic:
        return index_text.from_ast(tree, self.text, self.axes, self.sizes)

    def typed(self, tree: ast.expr) -> Node:
        if self.is_exact(tree):
            expr = self.index(tree)
            return sn.index(expr, DType.B1 if ix.is_boolean(expr) else DType.I64)
        match tree:
            case ast.Name(id="qk") if "qk" in self.dtypes:
                return sn.qk(self.dtypes["qk"])
            case ast.Subscript(value=ast.Name(id=name), slice=index) if name in self.dtypes:
                parts = index.elts if isinstance(index, ast.Tuple) else [index]
                return sn.load(name, tuple(self.index(p) for p in parts), self.dtypes[name])
            case ast.UnaryOp(op=ast.USub(), operand=operand) if _literal(tree) is None:
                return sn.unary("neg", self.typed(operand))
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return sn.logical("not", self.typed(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return self.two(_OPERATORS[type(op)], left, right)
            case ast.Compare(left=left, ops=[compare], comparators=[right]) if type(compare) in _OPERATORS:
                return self.two(_OPERATORS[type(compare)], left, right)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self.call(tree, name, args)
        if _literal(tree) is not None:
            raise self.fail(tree, "has no dtype; write for example f32(0.5)")
        raise self.fail(tree, "is not known here")

    def two(self, op: str, left: ast.expr, right: ast.expr) -> Node:
        x, y = self.pair(left, right)
        if op in sn.COMPARISONS:
            return sn.compare(op, x, y)
        return sn.logical(op, x, y) if op in sn.LOGIC else sn.binary(op, x, y)

    def pair(self, left: ast.expr, right: ast.expr) -> tuple[Node, Node]:
        """Two operands; a bare number takes the dtype of the other one."""
        first, second = _literal(left), _literal(right)
        if first is not None and second is None:
            y = self.typed(right)
            return sn.const(first, y.dtype), y
        if second is not None and first is None:
            x = self.typed(left)
            return x, sn.const(second, x.dtype)
        return self.typed(left), self.typed(right)

    def call(self, tree: ast.expr, name: str, args: list[ast.expr]) -> Node:
        if name in _DTYPES and len(args) == 1:
            value = _literal(args[0])
            return sn.cast(self.typed(args[0]), _DTYPES[name]) if value is None else sn.const(value, _DTYPES[name])
        if name == "where" and len(args) == 3:
            return sn.where(self.typed(args[0]), *self.pair(args[1], args[2]))
        if name in sn.ARITHMETIC and len(args) == 2:
            return sn.binary(name, *self.pair(args[0], args[1]))
        if name in sn.FUNCTIONS and len(args) == 1:
            return sn.unary(name, self.typed(args[0]))
        raise self.fail(tree, f"calls {name} with {len(args)} operands, which is not known here")


def _literal(tree: ast.expr) -> int | float | None:
    """The value of a bare number (``2``, ``-0.5``, ``inf``, ``nan``), else None."""
    match tree:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name) if name in _SPECIAL:
            return _SPECIAL[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() | ast.Name() as operand):
            inner = _literal(operand)
            return None if inner is None else -inner
    return None


_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.BitAnd: "and", ast.BitOr: "or",
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip
