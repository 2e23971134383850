"""Numeric evaluation of index expressions with numpy: the reference for planning and for generated code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy
from sympy.core.relational import Relational

from attnc.ir.index_terms import Load, is_size, ratio, sides

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Env:
    """Values for a formula: axes (integer arrays that broadcast), sizes, side tensors and the product Q·K.

    A formula may name a tensor it reads outside its bounds in the branch of a ``where`` that is not taken; such an
    index is clamped to the tensor.
    """

    axes: Mapping[str, Array | int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    sides: Mapping[str, Array] = field(default_factory=dict)
    qk: Array | None = None

    def read(self, name: str, indices: tuple[Any, ...]) -> Array:
        """Side tensor ``name`` at broadcast ``indices``. Raises ValueError where their count is not its rank."""
        tensor = self.sides[name]
        if tensor.ndim != len(indices):
            raise ValueError(f"evaluating {name}[…]: {len(indices)} indices for a tensor of shape {tensor.shape}")
        clamped = tuple(np.clip(i, 0, max(n - 1, 0)) for i, n in zip(indices, tensor.shape, strict=True))
        return np.asarray(tensor[clamped])


def evaluate(expr: sympy.Basic, env: Env) -> Any:
    """Value of an index expression: int64 or bool, an array where an axis is one. KeyError for a name without value."""
    return _Evaluator(env).value(sympy.sympify(expr))


class _Evaluator:
    def __init__(self, env: Env) -> None:
        self.env = env
        self.memo: dict[sympy.Basic, Any] = {}

    def value(self, expr: sympy.Basic) -> Any:
        if expr not in self.memo:
            self.memo[expr] = self._value(expr)
        return self.memo[expr]

    def _value(self, expr: sympy.Basic) -> Any:
        if expr in (sympy.true, sympy.false):
            return np.bool_(bool(expr))
        if isinstance(expr, sympy.Integer):
            return np.int64(int(expr))
        if isinstance(expr, sympy.Symbol):
            values: Mapping[str, Any] = self.env.sizes if is_size(expr) else self.env.axes
            return np.asarray(values[expr.name], np.int64)[()]
        if isinstance(expr, sympy.floor):
            top, bottom = ratio(expr.args[0])
            return self.value(top) // self.value(bottom)
        if isinstance(expr, Load):
            loaded = self.env.read(expr.name, tuple(self.value(i) for i in expr.indices))
            return np.asarray(loaded, np.int64)[()]
        if isinstance(expr, sympy.Piecewise):
            result = self.value(expr.args[-1][0])
            for value, condition in reversed(expr.args[:-1]):
                result = np.where(self.value(condition), self.value(value), result)[()]
            return result
        if isinstance(expr, sympy.ITE):
            return np.where(*(self.value(a) for a in expr.args))[()]
        arguments = [self.value(a) for a in (sides(expr) if isinstance(expr, Relational) else expr.args)]
        return self._apply(expr, arguments)

    def _apply(self, expr: sympy.Basic, arguments: list[Any]) -> Any:
        if isinstance(expr, sympy.Pow):
            return arguments[0] ** arguments[1]
        for kind, function in _FUNCTIONS.items():
            if isinstance(expr, kind):
                result = arguments[0] if len(arguments) > 1 else function(arguments[0])
                for argument in arguments[1:]:
                    result = function(result, argument)
                return result
        raise ValueError(f"not an index expression: {expr} ({type(expr).__name__})")


_FUNCTIONS: dict[type[sympy.Basic] | type[Relational], Any] = {
    sympy.Add: np.add,
    sympy.Mul: np.multiply,
    sympy.Mod: np.mod,
    sympy.Min: np.minimum,
    sympy.Max: np.maximum,
    sympy.Abs: np.abs,
    sympy.And: np.logical_and,
    sympy.Or: np.logical_or,
    sympy.Not: np.logical_not,
    sympy.StrictLessThan: np.less,
    sympy.LessThan: np.less_equal,
    sympy.StrictGreaterThan: np.greater,
    sympy.GreaterThan: np.greater_equal,
    sympy.Equality: np.equal,
    sympy.Unequality: np.not_equal,
}
