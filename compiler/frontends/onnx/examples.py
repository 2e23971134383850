"""Example inputs of a model from what it says of them, and which of their sizes stay symbolic."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.export import Dim

from attnc.compiler.frontends.onnx.dtypes import dtype_of, type_name
from attnc.compiler.frontends.onnx.errors import NoForm, OnnxError
from attnc.compiler.frontends.onnx.model import Model, Port

_LENGTHS = (17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
"""Lengths of the example: unlike each other and unlike sizes of models."""
_BATCHES = (3, 5, 7, 11, 13)
_LONGEST = 200
"""Characters of a dimension that is read as a formula."""


Bounds = tuple[int, int | None]
"""The least and the greatest length, inclusive; None: unbounded."""


class Lengths:
    """A length for every symbolic dimension: of the same name the same, of a formula what it says."""

    def __init__(self, model: Model, given: Mapping[str, int | Bounds] | None = None) -> None:
        self.of_names: dict[str, int] = {}
        batches, others = iter(_BATCHES), iter(_LENGTHS)
        for port in model.inputs:
            for place, dim in enumerate(port.shape or ()):
                for name in self._parts(port, place, dim):
                    if name not in self.of_names:
                        more = _next(batches) if place == 0 and len(port.shape or ()) > 1 else _next(others)
                        self.of_names[name] = _within((given or {}).get(name), more)
        if unknown := [name for name in given or {} if name not in self.of_names]:
            known = ", ".join(self.of_names) or "none"
            raise OnnxError(f"reading {model.name}: it has no size named {unknown[0]!r}; its sizes are {known}")

    @staticmethod
    def _parts(port: Port, place: int, dim: int | str | None) -> list[str]:
        """The names a dimension depends on."""
        if isinstance(dim, int):
            return []
        if dim is None:
            return [f"{port.name}.{place}"]
        formula = read_formula(dim)
        return [dim] if formula is None else sorted(str(symbol) for symbol in formula.free_symbols)

    def length(self, port: Port, place: int) -> int:
        """The example's length of a dimension."""
        dim = (port.shape or ())[place]
        if isinstance(dim, int):
            return dim
        if dim is None:
            return self.of_names[f"{port.name}.{place}"]
        formula = read_formula(dim)
        return self.of_names[dim] if formula is None else int(formula.subs(self.of_names))


def _within(given: int | Bounds | None, length: int) -> int:
    """The length of an example: as given, else ``length`` or the bound nearest to it."""
    if given is None or isinstance(given, int):
        return length if given is None else given
    low, high = given
    return max(low, length if high is None else min(length, high))


def _next(lengths: Iterator[int]) -> int:
    return next(lengths, 7)


def read_formula(dim: str) -> sympy.Expr | None:
    """What a dimension such as ``past + sequence`` says; None for a text that is no sum or product of names."""
    if len(dim) > _LONGEST:
        return None
    try:
        return _formula(ast.parse(dim, mode="eval").body)
    except (SyntaxError, ValueError, KeyError):
        return None


def _formula(node: ast.expr) -> sympy.Expr:
    match node:
        case ast.Name(id=name):
            return sympy.Symbol(name)
        case ast.Constant(value=int(value)):
            return sympy.Integer(value)
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATIONS[type(operation)](_formula(left), _formula(right))
    raise ValueError


_OPERATIONS: dict[type[ast.operator], Callable[[sympy.Expr, sympy.Expr], sympy.Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: sympy.floor(a / b),
    ast.FloorDiv: lambda a, b: sympy.floor(a / b),
}


def example_inputs(model: Model, lengths: Lengths) -> dict[str, Tensor]:
    """Inputs of the right type and shape, by name. Integers are 0 and 1. NoForm where torch has no such input."""
    return {port.name: _example(port, lengths) for port in model.inputs}


def _example(port: Port, lengths: Lengths) -> Tensor:
    if port.kind != "tensor_type" or port.shape is None:
        raise NoForm(f"the input {port.name!r} is {'a tensor of unknown rank' if port.shape is None else port.kind}")
    dtype = dtype_of(port.number)
    shape = [lengths.length(port, place) for place in range(len(port.shape))]
    generator = torch.Generator().manual_seed(len(port.name))
    if dtype.is_floating_point and dtype.itemsize > 1:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


def given_inputs(model: Model, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The caller's examples. Raises OnnxError where one is missing, unknown, or of another type or shape."""
    wanted = {port.name: port for port in model.inputs}
    if missing := [name for name in wanted if name not in inputs]:
        raise OnnxError(f"reading {model.name}: no example for the input {missing[0]!r}")
    if unknown := [name for name in inputs if name not in wanted]:
        raise OnnxError(f"reading {model.name}: it has no input {unknown[0]!r}; its inputs are {', '.join(wanted)}")
    for name, port in wanted.items():
        _check_example(model, port, inputs[name])
    return dict(inputs)


def _check_example(model: Model, port: Port, x: Tensor) -> None:
    shape = None if port.shape is None else [dim if isinstance(dim, int) else None for dim in port.shape]
    fits = shape is None or (
        len(shape) == x.dim() and all(dim in (None, length) for dim, length in zip(shape, x.shape, strict=True))
    )
    if x.dtype != dtype_of(port.number) or not fits:
        wanted = f"{type_name(port.number)} {list(port.shape) if port.shape is not None else ''}"
        raise OnnxError(
            f"reading {model.name}: the example for {port.name!r} is {x.dtype} {list(x.shape)}, the input is {wanted}"
        )


def dynamic_shapes(
    model: Model, arguments: Mapping[str, str], sizes: Mapping[str, int | Bounds] | None = None
) -> dict[str, dict[int, Any]]:
    """``torch.export``'s dynamic_shapes: a dimension without a number may have any length within its bounds."""
    return {
        arguments[port.name]: {
            place: _dynamic((sizes or {}).get(f"{port.name}.{place}" if dim is None else dim), dim)
            for place, dim in enumerate(port.shape or ())
            if not isinstance(dim, int)
        }
        for port in model.inputs
    }


def _dynamic(given: int | Bounds | None, name: str | None) -> Any:
    """At least 1 by default; there may be no earlier tokens."""
    if isinstance(given, tuple):
        return Dim.AUTO(min=given[0], max=given[1])
    return Dim.AUTO(min=0 if name is not None and "past" in name else 1)
