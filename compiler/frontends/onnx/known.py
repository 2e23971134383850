"""Values that are known while a model is imported: small tensors of constants, and sizes.

Exporters write shapes as graphs of small integer tensors (Shape, Gather, Concat, Reshape). Their elements are kept here
as Python integers and symbolic sizes, so that nothing of them is left in the imported graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy
import torch
from torch import Tensor

from attnc.compiler.frontends.onnx.dtypes import STORED_ONLY
from attnc.compiler.frontends.onnx.errors import NoForm

Int: TypeAlias = int
"""An integer, or a size of the traced graph: torch.SymInt, which its stubs take for an int."""
Items: TypeAlias = numpy.ndarray[Any, Any]

MOST_ELEMENTS = 4096
"""Larger constants are not folded: their ops stay in the graph."""
MOST_SIZES = 256


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor of known numbers, made outside of tracing."""

    tensor: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype


@dataclass(frozen=True, eq=False)
class Sizes:
    """Integers of which some are symbolic sizes."""

    items: Items
    """Python integers and SymInts."""
    dtype: torch.dtype = torch.int64

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.items.shape)


Known: TypeAlias = Constant | Sizes
Value: TypeAlias = "Tensor | Constant | Sizes | list[Value] | None"
"""What a name of the graph stands for while it is traced; a list is an ONNX sequence, None an input left out."""


def as_items(entries: Sequence[Int] | Int) -> Items:
    """An array of objects, so that numpy never looks into a SymInt."""
    if isinstance(entries, Sequence):
        array = numpy.empty(len(entries), dtype=object)
        for place, entry in enumerate(entries):
            array[place] = entry
        return array
    scalar = numpy.empty((), dtype=object)
    scalar[()] = entries
    return scalar


def known_sizes(items: Items, dtype: torch.dtype = torch.int64) -> Known:
    """``Sizes``, or the constant it is where every entry is a number."""
    if all(isinstance(item, int) for item in items.flat):
        with untraced():
            return Constant(torch.tensor([int(item) for item in items.flat], dtype=dtype).reshape(items.shape))
    return Sizes(items, dtype)


def untraced() -> Any:
    """A context in which torch computes at once, whatever is tracing around it."""
    from attnc.compiler.frontends.torch import private

    return private.untraced()


def items_of(value: Known) -> Items:
    """The entries of a known integer tensor as Python integers and SymInts. Raises NoForm for floats."""
    if isinstance(value, Sizes):
        return value.items
    if value.tensor.is_floating_point() or value.tensor.is_complex():
        raise NoForm("sizes are not integers")
    array = numpy.empty(value.shape, dtype=object)
    with untraced():
        numbers = value.tensor.reshape(-1).tolist()
    for place, number in enumerate(numbers):
        array.reshape(-1)[place] = int(number)
    return array


def ints(value: Value, what: str) -> list[Int]:
    """The entries of a 0- or 1-D integer input that must be known. Raises NoForm where it is data."""
    if isinstance(value, Tensor) and _is_empty(value):
        return []
    if not isinstance(value, Constant | Sizes):
        raise NoForm(f"{what}: known only when the model runs")
    return list(items_of(value).reshape(-1))


def _is_empty(value: Tensor) -> bool:
    """Whether a tensor has no element, whatever its data."""
    return any(isinstance(length, int) and length == 0 for length in value.shape)


def numbers(value: Value, what: str) -> list[Any]:
    """The entries of a constant input, as Python numbers. Raises NoForm where it is data."""
    if not isinstance(value, Constant):
        raise NoForm(f"{what}: known only when the model runs")
    with untraced():
        return list(value.tensor.reshape(-1).tolist())


def number(value: Value, what: str) -> Any:
    """The only entry of a constant input. Raises NoForm where it is data or not one number."""
    found = numbers(value, what)
    if len(found) != 1:
        raise NoForm(f"{what} has {len(found)} entries, not one")
    return found[0]


def is_scalar(value: Value) -> bool:
    """Whether a value is one known number, of any rank."""
    return isinstance(value, Constant) and math.prod(value.shape) == 1


def materialise(value: Value) -> Tensor:
    """The value as a tensor of the traced graph. Raises NoForm for what is none (a sequence, an input left out)."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Constant):
        if math.prod(value.shape) == 1 and value.dtype not in STORED_ONLY:
            return torch.full(value.shape, number(value, "a constant"), dtype=value.dtype)
        return value.tensor
    if isinstance(value, Sizes):
        flat = [torch.full((), item, dtype=value.dtype) for item in value.items.flat]
        return torch.stack(flat).reshape(value.items.shape) if value.items.ndim else flat[0]
    raise NoForm("an input is no tensor" if value is not None else "an input is left out")
