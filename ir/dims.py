"""The text of dimensions: ``2*B*S``, ``(S + 1) // 2``, ``S % 4``, ``max(S, T)``.

Dimensions are rational arithmetic over sizes whose value is an integer; formulas over axes and loads are
``ir.index``'s. Reading rebuilds what was shown: sums and products are built from all their operands at once, because
sympy distributes a number over a sum only where these two are the whole product.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import sympy

from attnc.ir.diagnostics import PrintError
from attnc.ir.lexer import Cursor, Token, is_identifier
from attnc.ir.types import Dim, as_dim, size

_SUM, _PRODUCT, _POWER, _ATOM = range(4)
_MAX_EXPONENT = 64
"""Sizes fit 64 bits; a larger power would only be slow to compute."""

_FUNCTIONS: dict[str, Any] = {
    "floor": sympy.floor,
    "ceiling": sympy.ceiling,
    "max": sympy.Max,
    "min": sympy.Min,
    "abs": sympy.Abs,
}
_FUNCTION_NAMES = {function: name for name, function in _FUNCTIONS.items()}


@lru_cache(maxsize=16384)
def show_dim(dim: Dim) -> str:
    """The text of a dimension. Raises PrintError for an expression with no text form."""
    if isinstance(dim, int):
        return str(dim)
    if not isinstance(dim, sympy.Basic):
        raise PrintError(f"dimension {dim!r} ({type(dim).__name__}) has no text form")
    return _show(_rebuilt(dim))[0]


def _rebuilt(expr: sympy.Basic) -> sympy.Basic:
    """The expression sympy makes of its own parts: what reading the text will give, however it was built."""
    return expr.func(*(_rebuilt(arg) for arg in expr.args)) if expr.args else expr


def _show(expr: sympy.Basic) -> tuple[str, int]:
    """Text and binding strength."""
    match expr:
        case sympy.Symbol():
            return str(expr.name), _ATOM
        case sympy.Integer():
            return str(expr), _ATOM if expr >= 0 else _SUM
        case sympy.Add():
            return _show_sum(expr), _SUM
        case sympy.floor():
            return _show_floor(expr)
        case sympy.Mod():
            return f"{_at(expr.args[0], _POWER)} % {_at(expr.args[1], _POWER)}", _PRODUCT
        case sympy.Pow() if not _is_quotient(expr):
            return f"{_at(expr.base, _ATOM)}**{_at(expr.exp, _ATOM)}", _POWER
        case sympy.Mul() | sympy.Rational() | sympy.Pow():
            return _show_product(expr)
    if type(expr) in _FUNCTION_NAMES:
        arguments = sorted(expr.args, key=sympy.default_sort_key)
        return f"{_FUNCTION_NAMES[type(expr)]}({', '.join(_show(a)[0] for a in arguments)})", _ATOM
    raise PrintError(f"dimension {expr} ({type(expr).__name__}) has no text form")


def _at(expr: sympy.Basic, strength: int) -> str:
    text, bound = _show(expr)
    return text if bound >= strength else f"({text})"


def _show_sum(expr: sympy.Add) -> str:
    text = ""
    for term in expr.as_ordered_terms():
        negative = term.as_coeff_Mul()[0].is_negative
        sign = ("-" if negative else "") if not text else (" - " if negative else " + ")
        text += sign + _at(-term if negative else term, _PRODUCT)
    return text


def _show_floor(expr: sympy.floor) -> tuple[str, int]:
    top, bottom = sympy.fraction(sympy.together(expr.args[0]))
    if bottom != 1 and sympy.floor(top / bottom) == expr:
        return f"{_at(top, _POWER)} // {_at(bottom, _POWER)}", _PRODUCT
    return f"floor({_show(expr.args[0])[0]})", _ATOM


def _is_quotient(factor: sympy.Basic) -> bool:
    return isinstance(factor, sympy.Pow) and bool(factor.exp.is_Integer and factor.exp < 0)


def _show_product(expr: sympy.Basic) -> tuple[str, int]:
    coefficient, rest = expr.as_coeff_Mul()
    factors = [f for f in rest.as_ordered_factors() if f != 1]
    above = [_at(f, _POWER) for f in factors if not _is_quotient(f)]
    below = [_at(f.base**-f.exp, _POWER) for f in factors if _is_quotient(f)]
    if abs(coefficient.p) != 1 or not above:
        above.insert(0, str(abs(coefficient.p)))
    if coefficient.q != 1:
        below.insert(0, str(coefficient.q))
    sign, strength = ("-", _SUM) if coefficient.p < 0 else ("", _PRODUCT)
    return sign + "/".join(["*".join(above), *below]), strength


def parse_dim(cursor: Cursor) -> Dim:
    """Read a dimension. Raises ParseError."""
    token, following = cursor.token, cursor.peek()
    if following.text in (",", "]", ")", ">"):  # nearly every dimension is one token
        if token.kind == "int":
            cursor.index += 1
            return int(token.text)
        if token.kind == "name" and "." not in token.text:
            cursor.index += 1
            return size(token.text)
    return as_dim(_sum(cursor))


def _sum(cursor: Cursor) -> sympy.Expr:
    terms = [_product(cursor, cursor.accept("-"))]
    while cursor.at("+") or cursor.at("-"):
        negative = cursor.at("-")
        cursor.index += 1
        terms.append(_product(cursor, negative))
    return sympy.Add(*terms)


def _product(cursor: Cursor, negative: bool) -> sympy.Expr:
    factors = [_power(cursor)]
    while _at_operator(cursor) and cursor.token.text in ("*", "/", "//", "%"):
        operator = cursor.token.text
        cursor.index += 1
        operand = _power(cursor)
        if operator == "*":
            factors.append(operand)
        elif operand == 0:
            cursor.fail("division by zero", cursor.tokens[cursor.index - 1])
        elif operator == "/":
            factors.append(1 / operand)
        elif operator == "//":
            factors = [sympy.floor(sympy.Mul(*factors) / operand)]
        else:
            factors = [sympy.Mod(sympy.Mul(*factors), operand)]
    return sympy.Mul(-1, *factors) if negative else sympy.Mul(*factors)


def _at_operator(cursor: Cursor) -> bool:
    """Whether punctuation is next. ``S %4`` lexes as a size and the value %4; no value stands here, so it is split."""
    token = cursor.token
    if token.kind == "value":
        operand = token.text[1:]
        if not operand.isdecimal() and not is_identifier(operand):
            cursor.fail("expected an operator")
        parts = (
            Token("punct", "%", token.offset),
            Token("int" if operand.isdecimal() else "name", operand, token.offset + 1),
        )
        cursor.tokens[cursor.index : cursor.index + 1] = parts
    return cursor.token.kind == "punct"


def _power(cursor: Cursor) -> sympy.Expr:
    base = _atom(cursor)
    if not cursor.accept("**"):
        return base
    exponent = _atom(cursor)
    if exponent.is_number and abs(exponent) > _MAX_EXPONENT:
        cursor.fail(f"exponents are at most {_MAX_EXPONENT}", cursor.tokens[cursor.index - 1])
    if base == 0 and exponent.is_negative is not False:
        cursor.fail("a power of zero", cursor.tokens[cursor.index - 1])
    return base**exponent


def _atom(cursor: Cursor) -> sympy.Expr:
    token = cursor.token
    if token.kind == "int":
        cursor.index += 1
        return sympy.Integer(token.text)
    if token.kind == "name" and cursor.peek().text == "(":
        return _call(cursor)
    if token.kind == "name" and "." not in token.text:
        cursor.index += 1
        return size(token.text)
    if cursor.accept("("):
        inner = _sum(cursor)
        cursor.expect(")")
        return inner
    cursor.fail("expected a dimension (a number, a size name or an expression of them)")


def _call(cursor: Cursor) -> sympy.Expr:
    token = cursor.take("name", "a function")
    if token.text not in _FUNCTIONS:
        cursor.fail(f"unknown function {token.text!r} in a dimension; known: {', '.join(_FUNCTIONS)}", token)
    cursor.expect("(")
    arguments = [_sum(cursor)]
    while cursor.accept(","):
        arguments.append(_sum(cursor))
    cursor.expect(")")
    if token.text not in ("max", "min") and len(arguments) != 1:
        cursor.fail(f"{token.text} takes one argument, got {len(arguments)}", token)
    return _FUNCTIONS[token.text](*arguments)
