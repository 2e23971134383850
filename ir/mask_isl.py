"""Between index expressions and isl, which decides questions about sets of integers with symbolic sizes.

The only file of ``ir`` that names islpy. isl's names are invented (``p0``, ``x1``) since sizes may be called ``|q|``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import islpy as isl
import sympy
from sympy.core.relational import Relational

from attnc.ir.index_terms import is_size, ratio, sides, split_cases, where

MAX_OPERATIONS = 500_000
"""isl's own count of elementary steps for one question (deterministic, unlike time): causal needs a tenth of it, chunks
with an offset all."""


class NotAffine(ValueError):
    """The expression has no form in Presburger arithmetic: a load, a product of symbols, a symbolic divisor."""


class OutOfBudget(Exception):
    """isl gave up after its operation budget."""


@contextmanager
def budget(operations: int = MAX_OPERATIONS) -> Iterator[isl.Context]:
    """A fresh isl context that stops after ``operations``. Raises OutOfBudget when it does."""
    context = isl.Context()
    context.set_max_operations(operations)
    context.set_ast_build_detect_min_max(1)
    try:
        yield context
    except isl.Error as error:
        if _answers(context):
            raise
        raise OutOfBudget(str(error)) from error
    finally:
        context.set_max_operations(0)


def _answers(context: isl.Context) -> bool:
    """False where the budget is spent: then even a trivial question fails. The text of the error doesn't tell."""
    try:
        return not isl.Set("[n] -> { [i] : exists j : 2j = i and 0 <= j < n }", context).is_empty()
    except isl.Error:
        return False


class Space:
    """A tuple of set dimensions and parameters, all sympy symbols, in one isl context."""

    def __init__(self, context: isl.Context, dims: Sequence[sympy.Symbol], params: Sequence[sympy.Symbol]) -> None:
        self.context, self.dims, self.params = context, tuple(dims), tuple(params)
        self.names = {s: f"x{i}" for i, s in enumerate(self.dims)} | {s: f"p{i}" for i, s in enumerate(self.params)}

    def set(self, condition: sympy.Basic) -> isl.Set:
        """The points of ``dims`` where ``condition`` holds. Raises NotAffine."""
        return isl.Set(
            f"[{self._list(self.params)}] -> {{ [{self._list(self.dims)}] : {self.text(condition)} }}", self.context
        )

    def domain(self, condition: sympy.Basic) -> isl.Set:
        """The parameter values where ``condition`` (over parameters only) holds. Raises NotAffine."""
        return isl.Set(f"[{self._list(self.params)}] -> {{ : {self.text(condition)} }}", self.context)

    def map(self, results: Sequence[sympy.Expr]) -> isl.Map:
        """The map from ``dims`` to the tuple of ``results``."""
        names = [f"y{i}" for i in range(len(results))]
        equal = " and ".join(f"{n} = {self.text(r)}" for n, r in zip(names, results, strict=True))
        return isl.Map(
            f"[{self._list(self.params)}] -> {{ [{self._list(self.dims)}] -> [{', '.join(names)}] : {equal} }}",
            self.context,
        )

    def _list(self, symbols: Sequence[sympy.Symbol]) -> str:
        return ", ".join(self.names[s] for s in symbols)

    def text(self, condition: sympy.Basic) -> str:
        """The isl text of a condition or an affine expression. Raises NotAffine."""
        return _text(split_cases(condition, evaluate=False), self.names)

    def read(self, expr: isl.AstExpr) -> Any:
        """The index expression of an isl AST expression over this space's names."""
        return _read(expr, {name: symbol for symbol, name in self.names.items()})

    def condition(self, domain: isl.Set, assumed: isl.Set) -> sympy.Basic:
        """Membership in ``domain`` (of parameter values), as a condition that is right in ``assumed``."""
        build = ast_build(assumed)
        return sympy.sympify(_truth(self.read(build.expr_from_set(domain.gist(assumed).coalesce()))))


def drop_params(domain: isl.Set, first: int, count: int) -> isl.Set:
    """The parameter values for which some values of ``count`` parameters from ``first`` on are in ``domain``."""
    return domain.project_out(isl.dim_type.param, first, count)


def hull(numbers: isl.Set) -> isl.Set:
    """All integers between the first and the last of a set of single integers."""
    space = numbers.get_space()
    return numbers.apply(isl.Map.lex_le(space)).intersect(numbers.apply(isl.Map.lex_ge(space)))


def largest(numbers: isl.Set) -> int | None:
    """The largest of a set of single integers, over all parameters; None where there is none or no bound."""
    found = numbers.project_out(isl.dim_type.param, 0, numbers.dim(isl.dim_type.param)).dim_max_val(0)
    return found.to_python() if found.is_int() else None


def ast_build(domain: isl.Set) -> isl.AstBuild:
    """What writes sets and functions as expressions that hold in ``domain``; see :meth:`Space.read`."""
    return isl.AstBuild.from_context(domain)


def bounds_of_symbols(symbols: Sequence[sympy.Symbol]) -> sympy.Basic:
    """Sizes ≥ 1, axes ≥ 0, as a condition (kept from being decided by sympy's own assumptions)."""
    return conjunction(*(sympy.Ge(s, 1 if is_size(s) else 0, evaluate=False) for s in symbols))


def conjunction(*conditions: sympy.Basic) -> sympy.Basic:
    """And, not simplified by sympy (its assumptions would drop bounds that isl must see)."""
    return sympy.And(*conditions, evaluate=False)


def is_affine(condition: sympy.Basic) -> bool:
    """True where the condition is a Presburger formula: floor and Mod by integers, no load, no product of symbols."""
    try:
        _text(split_cases(condition, evaluate=False), {s: s.name for s in condition.free_symbols})
    except ValueError:  # NotAffine is one
        return False
    return True


_RELATIONS: Mapping[type[Relational], str] = {
    sympy.StrictLessThan: "<",
    sympy.LessThan: "<=",
    sympy.StrictGreaterThan: ">",
    sympy.GreaterThan: ">=",
    sympy.Equality: "=",
    sympy.Unequality: "!=",
}


def _text(expr: sympy.Basic, names: Mapping[sympy.Symbol, str]) -> str:
    if expr in (sympy.true, sympy.false):
        return str(bool(expr)).lower()
    if isinstance(expr, sympy.Symbol) and expr in names:
        return names[expr]
    if isinstance(expr, sympy.Integer):
        return str(expr)
    if isinstance(expr, Relational):
        left, right = (_text(side, names) for side in sides(expr))
        return f"{left} {_RELATIONS[type(expr)]} {right}"
    if isinstance(expr, sympy.And | sympy.Or):
        return (" and " if isinstance(expr, sympy.And) else " or ").join(f"({_text(a, names)})" for a in expr.args)
    if isinstance(expr, sympy.Not):
        return f"not ({_text(expr.args[0], names)})"
    if isinstance(expr, sympy.Add):
        return "(" + " + ".join(_text(a, names) for a in expr.args) + ")"
    if isinstance(expr, sympy.Mul):
        factor, rest = expr.as_coeff_Mul()
        if factor.is_Integer and not rest.is_Mul and factor != 1:
            return f"({factor} * {_text(rest, names)})"
    if isinstance(expr, sympy.floor):
        top, bottom = ratio(expr.args[0])
        if bottom.is_Integer:
            return f"floor(({_text(top, names)})/{bottom})"
    if isinstance(expr, sympy.Mod) and expr.args[1].is_Integer and expr.args[1] > 0:
        return f"(({_text(expr.args[0], names)}) mod {expr.args[1]})"
    if isinstance(expr, sympy.Min | sympy.Max):
        return f"{type(expr).__name__.lower()}({', '.join(_text(a, names) for a in expr.args)})"
    if isinstance(expr, sympy.Abs):
        inside = _text(expr.args[0], names)
        return f"max({inside}, -({inside}))"
    raise NotAffine(f"{expr} ({type(expr).__name__}) is not affine")


def _read(expr: isl.AstExpr, symbols: Mapping[str, sympy.Symbol]) -> Any:
    kind = isl.ast_expr_type(expr.get_type())
    if kind == isl.ast_expr_type.id:
        return symbols[expr.get_id().get_name()]
    if kind == isl.ast_expr_type.int:
        return sympy.Integer(expr.get_val().to_python())
    args = [_read(expr.get_op_arg(i), symbols) for i in range(expr.get_op_n_arg())]
    return _READ[isl.ast_expr_op_type(expr.get_op_type())](*args)


def _truth(value: Any) -> Any:
    return sympy.Ne(value, 0) if isinstance(value, sympy.Integer) else value


_OP = isl.ast_expr_op_type
_READ: Mapping[Any, Any] = {
    _OP.__members__["and_"]: lambda x, y: conjunction(_truth(x), _truth(y)),
    _OP.and_then: lambda x, y: conjunction(_truth(x), _truth(y)),
    _OP.__members__["or_"]: lambda x, y: sympy.Or(_truth(x), _truth(y), evaluate=False),
    _OP.or_else: lambda x, y: sympy.Or(_truth(x), _truth(y), evaluate=False),
    _OP.max: lambda *xs: sympy.Max(*xs, evaluate=False),
    _OP.min: lambda *xs: sympy.Min(*xs, evaluate=False),
    _OP.minus: lambda x: -x,
    _OP.add: lambda x, y: x + y,
    _OP.sub: lambda x, y: x - y,
    _OP.mul: lambda x, y: x * y,
    _OP.div: lambda x, y: sympy.floor(x / y, evaluate=False),  # exact by isl's promise
    _OP.fdiv_q: lambda x, y: sympy.floor(x / y, evaluate=False),
    _OP.pdiv_q: lambda x, y: sympy.floor(x / y, evaluate=False),  # dividend ≥ 0
    _OP.pdiv_r: lambda x, y: sympy.Mod(x, y, evaluate=False),
    _OP.zdiv_r: lambda x, y: sympy.Mod(x, y, evaluate=False),  # only compared with 0
    _OP.cond: lambda c, x, y: where(_truth(c), x, y),
    _OP.select: lambda c, x, y: where(_truth(c), x, y),
    _OP.eq: lambda x, y: sympy.Eq(x, y, evaluate=False),
    _OP.le: lambda x, y: sympy.Le(x, y, evaluate=False),
    _OP.lt: lambda x, y: sympy.Lt(x, y, evaluate=False),
    _OP.ge: lambda x, y: sympy.Ge(x, y, evaluate=False),
    _OP.gt: lambda x, y: sympy.Gt(x, y, evaluate=False),
}
"""Built unevaluated: isl has simplified already, and sympy's own attempts on min, max and comparisons are slow."""
