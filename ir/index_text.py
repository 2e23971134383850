"""The text of index expressions: ``(k <= q) & (k - q > -16) & (t0[b, k] != 0)``, ``k // 4``, ``where(c, a, b)``.

The syntax is a subset of Python's expressions (so that Python's parser reads it), with ``&``, ``|``, ``~`` as logic.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection

import sympy
from sympy.core.relational import Relational

from attnc.ir.index_terms import Load, axis, ratio, sides, split_cases, where
from attnc.ir.types import size

OR, AND, COMPARE, SUM, PRODUCT, UNARY, ATOM = range(1, 8)
"""Binding strength, weakest first. A comparison under ``&`` or ``|`` always needs parentheses (as in Python)."""

_RELATIONS: dict[type[Relational], str] = {
    sympy.StrictLessThan: "<",
    sympy.LessThan: "<=",
    sympy.StrictGreaterThan: ">",
    sympy.GreaterThan: ">=",
    sympy.Equality: "==",
    sympy.Unequality: "!=",
}
_COMPARE: dict[type[ast.cmpop], type[Relational]] = {
    ast.Lt: sympy.StrictLessThan,
    ast.LtE: sympy.LessThan,
    ast.Gt: sympy.StrictGreaterThan,
    ast.GtE: sympy.GreaterThan,
    ast.Eq: sympy.Equality,
    ast.NotEq: sympy.Unequality,
}


def show(expr: sympy.Basic) -> str:
    """The formula of an index expression. Raises ValueError where it is not one."""
    return shown(sympy.sympify(expr))[0]


def shown(expr: sympy.Basic) -> tuple[str, int]:
    """Text and binding strength. Raises ValueError as :func:`show` does."""

    def at(child: sympy.Basic, strength: int) -> str:
        text, bound = shown(child)
        return text if bound >= strength else f"({text})"

    def listed(children: Collection[sympy.Basic]) -> str:
        return ", ".join(at(c, 0) for c in children)

    if expr in (sympy.true, sympy.false):
        return str(bool(expr)), ATOM
    if isinstance(expr, sympy.Symbol):
        return expr.name, ATOM
    if isinstance(expr, sympy.Integer):
        return str(expr), ATOM if expr >= 0 else UNARY
    if isinstance(expr, Load):
        return f"{expr.name}[{listed(expr.indices)}]", ATOM
    if isinstance(expr, Relational):
        left, right = sides(expr)
        return f"{at(left, SUM)} {_RELATIONS[type(expr)]} {at(right, SUM)}", COMPARE
    if isinstance(expr, sympy.And):
        return " & ".join(at(c, AND + 2) for c in _ordered(expr.args)), AND
    if isinstance(expr, sympy.Or):
        return " | ".join(at(c, AND) if isinstance(c, sympy.And) else at(c, AND + 2) for c in _ordered(expr.args)), OR
    if isinstance(expr, sympy.ITE):
        return shown(split_cases(expr))
    if isinstance(expr, sympy.Not):
        return f"~{at(expr.args[0], ATOM)}", UNARY
    if isinstance(expr, sympy.Add):
        return _sum(expr, at), SUM
    if isinstance(expr, sympy.Mul):
        return _product(expr, at)
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and expr.exp > 0:
        return "*".join([at(expr.base, UNARY)] * int(expr.exp)), PRODUCT
    if isinstance(expr, sympy.floor):
        top, bottom = ratio(expr.args[0])
        return f"{at(top, PRODUCT)} // {at(bottom, UNARY)}", PRODUCT
    if isinstance(expr, sympy.Mod):
        return f"{at(expr.args[0], PRODUCT)} % {at(expr.args[1], UNARY)}", PRODUCT
    if isinstance(expr, sympy.Min | sympy.Max | sympy.Abs):
        return f"{type(expr).__name__.lower()}({listed(_ordered(expr.args))})", ATOM
    if isinstance(expr, sympy.Piecewise) and expr.args[-1][1] == sympy.true:
        text = at(expr.args[-1][0], 0)
        for value, condition in reversed(expr.args[:-1]):
            text = f"where({at(condition, 0)}, {at(value, 0)}, {text})"
        return text, ATOM
    raise ValueError(f"not an index expression: {expr} ({type(expr).__name__})")


def _ordered(args: Collection[sympy.Basic]) -> list[sympy.Basic]:
    """Conditions without loads first, shorter first, then by text: `(k <= q) & (t0[b, k] != 0)`."""
    return sorted(args, key=lambda a: (bool(a.atoms(Load)), len(str(a)), str(a)))


def _sum(expr: sympy.Add, at: Callable[[sympy.Basic, int], str]) -> str:
    terms = sorted(expr.args, key=lambda t: (t.could_extract_minus_sign(), t.is_number, str(t)))
    text = at(terms[0], SUM)
    for term in terms[1:]:
        if term.could_extract_minus_sign():
            text += f" - {at(-term, PRODUCT)}"
        else:
            text += f" + {at(term, PRODUCT)}"
    return text


def _product(expr: sympy.Mul, at: Callable[[sympy.Basic, int], str]) -> tuple[str, int]:
    if expr.could_extract_minus_sign() and expr.args[0].is_Integer:
        rest = -expr
        return f"-{at(rest, UNARY)}" if not isinstance(rest, sympy.Mul) else f"-{at(rest, PRODUCT)}", PRODUCT
    factors = (at(f, PRODUCT if isinstance(f, sympy.Pow) else UNARY) for f in expr.args)
    return "*".join(factors), PRODUCT


def parse(text: str, axes: Collection[str], sizes: Collection[str]) -> sympy.Basic:
    """The index expression that :func:`show` wrote; subscripted names become loads.

    Raises ValueError, naming the position, on a syntax error, an unknown name or a construct that has no place here.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"reading index expression {text!r}: {error.msg} at column {error.offset}") from error
    return from_ast(tree, text, frozenset(axes), frozenset(sizes))


def from_ast(tree: ast.expr, text: str, axes: Collection[str], sizes: Collection[str]) -> sympy.Basic:
    """The index expression of a parsed subtree of ``text``. Raises ValueError as :func:`parse` does."""

    def build(node: ast.expr) -> sympy.Basic:
        match node:
            case ast.Constant(value=bool() | int() as value):
                return sympy.sympify(value)
            case ast.Name(id=name) if name in axes:
                return axis(name)
            case ast.Name(id=name) if name in sizes:
                return size(name)
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                parts = index.elts if isinstance(index, ast.Tuple) else [index]
                return Load(sympy.Symbol(name), *(build(p) for p in parts))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -build(operand)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return sympy.Not(build(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                return BINARY[type(op)](build(left), build(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return _COMPARE[type(op)](build(left), build(right))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in CALLS:
                return CALLS[name](*(build(a) for a in args))
        source = ast.get_source_segment(text, node) or ast.unparse(node)
        raise ValueError(f"reading index expression {text!r}: {source!r} at column {node.col_offset} is not known here")

    try:
        return build(tree)
    except TypeError as error:
        raise ValueError(f"reading index expression {text!r}: {error}") from error


BINARY: dict[type[ast.operator], Callable[[sympy.Basic, sympy.Basic], sympy.Basic]] = {
    ast.Add: lambda x, y: x + y,
    ast.Sub: lambda x, y: x - y,
    ast.Mult: lambda x, y: x * y,
    ast.FloorDiv: lambda x, y: sympy.floor(x / y),
    ast.Mod: sympy.Mod,
    ast.BitAnd: sympy.And,
    ast.BitOr: sympy.Or,
}
CALLS: dict[str, Callable[..., sympy.Basic]] = {"min": sympy.Min, "max": sympy.Max, "abs": sympy.Abs, "where": where}
