"""IR types of the example values tracing leaves on FX nodes."""

from __future__ import annotations

from typing import Any

import torch

from attnc.compiler.frontends.torch.dtypes import TO_IR
from attnc.compiler.frontends.torch.sizes import NoSize, SizeTable
from attnc.ir.types import NoneType, OpaqueType, ScalarType, TensorType, TupleType, Type


def type_of(value: Any, sizes: SizeTable) -> Type:
    """The type of one example value.

    Raises :class:`NoSize` for a tensor whose shape the IR cannot say; strides and scalars it cannot say are left out.
    """
    if value is None:
        return NoneType()
    if isinstance(value, torch.Tensor):
        return _tensor(value, sizes)
    if isinstance(value, bool | torch.SymBool):
        return ScalarType("bool")
    if isinstance(value, int | torch.SymInt):
        return _integer(value, sizes)
    if isinstance(value, float | torch.SymFloat):
        return ScalarType("float")
    if isinstance(value, tuple | list):
        return TupleType(tuple(type_of(v, sizes) for v in value))
    return OpaqueType(type(value).__name__)


def _tensor(value: torch.Tensor, sizes: SizeTable) -> Type:
    if value.layout != torch.strided or value.dtype not in TO_IR:
        return OpaqueType(f"tensor {value.dtype} {value.layout}".replace("torch.", ""))
    shape = tuple(sizes.dim(extent) for extent in value.shape)
    try:
        strides = tuple(sizes.dim(stride) for stride in value.stride())
    except NoSize:
        strides = None
    return TensorType(TO_IR[value.dtype], shape, str(value.device), strides)


def _integer(value: int | torch.SymInt, sizes: SizeTable) -> Type:
    try:
        return ScalarType("int", sizes.dim(value))
    except NoSize:
        return ScalarType("int")
