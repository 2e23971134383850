"""Symbolic sizes: torch's symbols and sympy functions become named positive sizes and plain sympy.

An IR size is a positive integer. A torch symbol that may be lower (an unbacked size, a Python int argument) is written
``name - 1 + lo`` over a size ``name`` that is shifted to start at 1; a symbol without a lower bound has no size at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from attnc.compiler.frontends.torch import private
from attnc.ir.graph import SizeInfo
from attnc.ir.types import Dim, as_dim, size

DIMS = "attnc_dims"
"""Key of an input's metadata: the name its source has for each dimension, or None."""

INTEGERS = (torch.int64, torch.int32)


class NoSize(Exception):
    """An expression the IR's sizes cannot say; the message names it."""


@dataclass
class SizeTable:
    """Translates the symbolic integers of one graph, and collects the named sizes met with their bounds."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Torch symbol name to the name wanted for it."""
    sizes: dict[str, SizeInfo] = field(default_factory=dict)
    _symbols: dict[sympy.Symbol, sympy.Expr] = field(default_factory=dict)

    def dim(self, value: int | torch.SymInt) -> Dim:
        """A dimension or stride. Raises :class:`NoSize`."""
        if isinstance(value, int):
            return value
        env = value.node.shape_env
        return as_dim(self.expr(private.symint_expr(value), env))

    def expr(self, expr: sympy.Expr, env: Any) -> sympy.Expr:
        """Torch's expression over our sizes. Raises :class:`NoSize` for an unbounded symbol or an unknown function."""
        if isinstance(expr, sympy.Symbol):
            return self._symbol(expr, env)
        if not expr.args:
            if not expr.is_Integer and not expr.is_Rational:
                raise NoSize(f"{expr} is not an integer")
            return expr
        args = [self.expr(a, env) for a in expr.args]
        translate = _FUNCTIONS.get(type(expr).__name__)
        if translate is None:
            raise NoSize(f"no size form of {type(expr).__name__} in {expr}")
        return translate(*args)

    def _symbol(self, symbol: sympy.Symbol, env: Any) -> sympy.Expr:
        if symbol not in self._symbols:
            self._symbols[symbol] = self._declare(symbol, env)
        return self._symbols[symbol]

    def _declare(self, symbol: sympy.Symbol, env: Any) -> sympy.Expr:
        lo, hi = private.int_bounds(env, symbol)
        if lo is None:
            raise NoSize(f"{symbol} has no lower bound")
        wanted = self.names.get(symbol.name, symbol.name)
        shift = min(lo, 1) - 1
        name = wanted if shift == 0 else f"{wanted}_from_{lo}".replace("-", "minus")
        self.sizes[name] = SizeInfo(lo - shift, None if hi is None else hi - shift)
        return size(name) + shift


def _ceiling(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    return sympy.floor((a + b - 1) / b)


_FUNCTIONS: dict[str, Callable[..., sympy.Expr]] = {
    "Add": sympy.Add,
    "Mul": sympy.Mul,
    "Pow": sympy.Pow,
    "PowByNatural": sympy.Pow,
    "FloorDiv": lambda a, b: sympy.floor(a / b),
    "CleanDiv": lambda a, b: sympy.floor(a / b),
    "CeilDiv": _ceiling,
    "Mod": sympy.Mod,
    "PythonMod": sympy.Mod,
    "ModularIndexing": lambda a, b, m: sympy.Mod(sympy.floor(a / b), m),
    "Max": sympy.Max,
    "Min": sympy.Min,
    "floor": sympy.floor,
    "ceiling": sympy.ceiling,
    "Identity": lambda a: a,
}
"""Torch's sympy functions by class name. Torch's ``Mod`` is of non-negative numbers, where it equals sympy's."""


def size_names(inputs: Iterable[tuple[str, Any]], env: Any) -> dict[str, str]:
    """Names wanted for torch symbols: the user's ``Dim`` names, then ``B`` and ``S`` where they are free."""
    users = private.dim_names(env) if env is not None else {}
    users = {symbol: name for symbol, name in users.items() if list(users.values()).count(name) == 1}
    marks = {symbol: mark for symbol, mark in mark_names(inputs).items() if mark not in users.values()}
    return {**marks, **users}


def given_names(value: Any, dims: Sequence[str | None]) -> dict[str, str]:
    """Torch symbol name → the name a source gives the dimension that is this symbol."""
    shape = value.shape if isinstance(value, torch.Tensor) else ()
    symbols = [(_plain_symbol(extent), name) for extent, name in zip(shape, dims, strict=False)]
    return {symbol: name for symbol, name in symbols if symbol is not None and name is not None}


def mark_names(inputs: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Torch symbol name → ``B`` or ``S``, from graph inputs (user's name, fake value).

    The first two dimensions of the token ids: the 2-D integer input called ``input_ids``, or the only 2-D integer
    input there is. A dimension is named where it is one plain symbol, and both are not the same one.
    """
    ids = [(name, v) for name, v in inputs if isinstance(v, torch.Tensor) and v.dtype in INTEGERS and v.dim() == 2]
    named = [v for name, v in ids if name == "input_ids"]
    if len(named) != 1:
        named = [v for _, v in ids]
    if len(named) != 1:
        return {}
    symbols = [_plain_symbol(extent) for extent in named[0].shape]
    if symbols[0] == symbols[1]:
        return {}
    return {symbol: mark for symbol, mark in zip(symbols, ("B", "S"), strict=True) if symbol is not None}


def _plain_symbol(extent: int | torch.SymInt) -> str | None:
    if isinstance(extent, int):
        return None
    expr = private.symint_expr(extent)
    return expr.name if isinstance(expr, sympy.Symbol) else None
