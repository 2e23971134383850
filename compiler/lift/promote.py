"""Type promotion of pointwise operands, as the host does it."""

from __future__ import annotations

from collections.abc import Sequence

from attnc.compiler.lift.convert import convert
from attnc.compiler.lift.element import Coords, Element, Refused
from attnc.compiler.lift.scope import Scope, tensor
from attnc.ir.types import DType, ScalarType
from attnc.ir.values import Arg, Value

_SIGNED = (DType.I8, DType.I16, DType.I32, DType.I64)


def dtype_of(arg: Arg) -> DType:
    """The dtype of an operand; python numbers are i64, f64 and b1. Raises Refused for anything else."""
    if isinstance(arg, bool):
        return DType.B1
    if isinstance(arg, int):
        return DType.I64
    if isinstance(arg, float):
        return DType.F64
    if not isinstance(arg, Value):
        raise Refused(f"operand {arg!r}")
    return DType.I64 if isinstance(arg.type, ScalarType) else tensor(arg).dtype


def common_dtype(args: Sequence[Arg]) -> DType:
    """The dtype in which a comparison of ``args`` takes place.

    Tensors with dimensions count before tensors of rank 0, and those before numbers; a lower group counts only where
    its category (bool < int < float) is higher. Raises Refused for dtypes whose promotion isn't listed here.
    """
    result: DType | None = None
    for strength in (2, 1, 0):
        group: DType | None = None
        for dtype in (_weak(a) for a in args if _strength(a) == strength):
            group = dtype if group is None else _join(group, dtype)
        if group is not None and (result is None or _category(group) > _category(result)):
            result = group
    if result is None:
        raise Refused("no operands")
    return result


def promoted(scope: Scope, arg: Arg, at: Coords, dtype: DType) -> Element:
    """An operand broadcast to ``at``, in the dtype of the computation.

    Raises Refused where the operand isn't exact there: 16-bit kernels read some scalars in float32, others rounded.
    """
    element, old = scope.operand(arg, at), dtype_of(arg)
    converted = convert(scope, element, old, dtype)
    if dtype.is_float and dtype.bits == 16 and old is not DType.B1 and converted != element:
        raise Refused(f"an operand is not exact in {dtype.value}")
    return converted


def _strength(arg: Arg) -> int:
    if not isinstance(arg, Value) or isinstance(arg.type, ScalarType):
        return 0
    return 2 if tensor(arg).rank else 1


def _weak(arg: Arg) -> DType:
    return DType.F32 if isinstance(arg, float) else dtype_of(arg)


def _category(dtype: DType) -> int:
    return 2 if dtype.is_float else 1 if dtype.is_int else 0


def _join(a: DType, b: DType) -> DType:
    """Promotion of two tensors of one group."""
    if a is b:
        return a
    if _category(a) != _category(b):
        return a if _category(a) > _category(b) else b
    if a.is_float:
        return max(a, b, key=lambda d: d.bits) if a.bits != b.bits else DType.F32
    if DType.U8 in (a, b):
        other = b if a is DType.U8 else a
        if other in _SIGNED:
            return other if other.bits > 8 else DType.I16
    if a in _SIGNED and b in _SIGNED:
        return max(a, b, key=lambda d: d.bits)
    raise Refused(f"promotion of {a.value} and {b.value}")
