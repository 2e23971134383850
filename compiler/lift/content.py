"""Formulas of constants a graph holds, recognised by comparing them with the whole content.

Recognised: one value everywhere; a + Σ c·i over the coordinates i (positions); two values split by a band of diagonals
(lower and upper triangles, windows, the identity), the same in every leading dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy

from attnc.compiler.lift.compare import compare
from attnc.compiler.lift.element import EXACT_INTEGER, Coords, Element, number, pick, single
from attnc.compiler.lift.scope import Scope

Formula = Callable[[Scope, Coords], Element]
Array = np.ndarray[Any, np.dtype[Any]]


def recognise(payload: object) -> Formula | None:
    """The formula of a tensor's content, None where it has none or there is no content to read."""
    array = to_numpy(payload)
    if array is None or array.size == 0 or (array.dtype.kind == "f" and bool(np.isnan(array).any())):
        return None
    for attempt in (_uniform, _affine, _band):
        formula = attempt(array)
        if formula is not None:
            return formula
    return None


def to_numpy(payload: object) -> Array | None:
    """A boolean, integer or float tensor (torch or numpy) as an array; None for anything else, fake tensors too."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    if isinstance(payload, torch.Tensor):
        if isinstance(payload, FakeTensor) or payload.layout != torch.strided or payload.is_meta:
            return None
        plain = payload.detach().cpu()
        payload = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    if isinstance(payload, np.ndarray) and payload.dtype.kind in "biuf":
        return payload
    return None


def _element(value: Any) -> Element:
    if isinstance(value, np.bool_):
        return sympy.true if value else sympy.false
    return number(value.item())


def _uniform(array: Array) -> Formula | None:
    first = array.reshape(-1)[0]
    if not bool((array == first).all()):
        return None
    element = _element(first)
    return lambda scope, at: element


def _affine(array: Array) -> Formula | None:
    """a + Σ c·i with integer coefficients, read off the neighbours of the first element."""
    if array.dtype.kind == "b":
        return None
    origin = (0,) * array.ndim
    neighbours = [
        array[(*origin[:d], 1, *origin[d + 1 :])] if n > 1 else array[origin] for d, n in enumerate(array.shape)
    ]
    samples = [float(x) for x in (array[origin], *neighbours)]
    if not all(x.is_integer() and abs(x) < EXACT_INTEGER for x in samples):
        return None
    start = int(array[origin])
    steps = [int(x) - start for x in neighbours]
    expected = np.full((), start, np.int64)
    for step, places in zip(steps, np.ogrid[tuple(slice(n) for n in array.shape)], strict=True):
        expected = expected + step * places
    if not bool((array == expected).all()):
        return None
    return lambda scope, at: single(sum((c * i for c, i in zip(steps, at, strict=True)), sympy.Integer(start)))


def _band(array: Array) -> Formula | None:
    """One value where low ≤ column − row ≤ high, another elsewhere."""
    if array.ndim < 2:
        return None
    matrix = array.reshape(-1, *array.shape[-2:])[0]
    if not bool((array == matrix).all()):
        return None
    rows, columns = matrix.shape
    diagonal = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    for inside in (matrix[-1, 0], matrix[0, -1], matrix[0, 0]):
        hit = matrix == inside
        outside = matrix[~hit]
        low, high = int(diagonal[hit].min()), int(diagonal[hit].max())
        exact = bool((hit == ((low <= diagonal) & (diagonal <= high))).all())
        if exact and outside.size and bool((outside == outside[0]).all()):
            return _banded(low, high, _element(inside), _element(outside[0]))
    return None


def _banded(low: int, high: int, inside: Element, outside: Element) -> Formula:
    def formula(scope: Scope, at: Coords) -> Element:
        place = at[-1] - at[-2]
        within = sympy.And(
            compare(scope, "ge", place, sympy.Integer(low)), compare(scope, "le", place, sympy.Integer(high))
        )
        return pick(within, inside, outside)

    return formula
