"""What ``triton_compat`` replaces in Triton's interpreter, and when: the table REPAIRS, at the end.

The interpreter keeps bf16 and fp8 tensors as their bits, in unsigned integers, and then computes with these integers.
The repairs read the bits as float32, let the stock code compute, and round the result once.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as stock

from tests.triton.handles import handle_of, is_stored_as_bits, numbers, operand, retyped
from tests.triton.number_formats import Array, cut_tf32, round_tf32

BUILDER = stock.InterpreterBuilder
NEEDED = {
    stock: ("TensorHandle", "_LangPatchScope", "_get_np_dtype", "_patch_lang_tensor", "interpreter_builder"),
    BUILDER: (
        *("binary_op", "unary_op", "create_fma", "cast_impl", "create_fp_to_fp", "get_fp32", "get_int32"),
        *("create_dot", "create_atomic_rmw", "create_maxnumf", "create_minnumf"),
    ),
    stock.ReduceOps: ("sum", "min_max"),
    stock.ScanOps: ("cumsum", "cumprod"),
}
"""What the repairs replace or call, by who has it."""


@dataclass
class Settings:
    """How this process computes."""

    round_tf32: bool = False


SETTINGS = Settings()


def repair_arithmetic() -> None:
    """Arithmetic and comparisons on bf16; a comparison is a boolean, whatever was compared.

    (Stock labels it with the dtype of what was compared. A scalar one, once splat, held int32 and was no mask.)
    """
    binary, unary = BUILDER.binary_op, BUILDER.unary_op

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        result = binary(self, operand(lhs), operand(rhs), op)
        if result.data.dtype == np.bool_:
            return stock.TensorHandle(result.data, tl.int1)
        return handle_of(result.data, tl.bfloat16) if lhs.dtype.scalar == tl.bfloat16 else result

    def unary_op(self: Any, arg: Any, op: Any) -> Any:
        result = unary(self, operand(arg), op)
        return handle_of(result.data, tl.bfloat16) if arg.dtype.scalar == tl.bfloat16 else result

    BUILDER.binary_op, BUILDER.unary_op = binary_op, unary_op


def repair_fma() -> None:
    """x·y + z rounded once. In float64 the product of two float32 is exact."""
    fma = BUILDER.create_fma

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        dtype = z.dtype.scalar
        if dtype == tl.float64 or (dtype != tl.bfloat16 and has_fma()):
            return fma(self, x, y, z)
        x, y, z = (numbers(operand(h)).astype(np.float64) for h in (x, y, z))
        return handle_of(x * y + z, dtype)

    BUILDER.create_fma = create_fma


def has_fma() -> bool:
    return hasattr(stock._interpreter, "fma_fp32")


def repair_casts() -> None:
    """Casts from and to bf16 and fp8: to nearest with ties to even unless told otherwise, NaN kept."""
    cast, convert = BUILDER.cast_impl, BUILDER.create_fp_to_fp

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        return recast(src, dst_type, None) if is_ours(src, dst_type) else cast(self, src, dst_type)

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding: Any) -> Any:
        ours = is_ours(src, dst_type)
        return recast(src, dst_type, rounding) if ours else convert(self, src, dst_type, rounding)

    def is_ours(src: Any, dst_type: Any) -> bool:
        return is_stored_as_bits(src.dtype.scalar) or is_stored_as_bits(dst_type.scalar)

    def recast(src: Any, dst_type: Any, rounding: Any) -> Any:
        return handle_of(numbers(src), dst_type.scalar, toward_zero=rounding == stock._ir.ROUNDING_MODE.RTZ)

    BUILDER.cast_impl, BUILDER.create_fp_to_fp = cast_impl, create_fp_to_fp


def repair_dot() -> None:
    """Products of bf16 and of fp8, added up in float32; TF32 where asked for."""
    dot = BUILDER.create_dot

    @functools.wraps(dot)
    def create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, *rest: Any) -> Any:
        if is_stored_as_bits(a.dtype.scalar):
            product = np.matmul(numbers(a), numbers(b))
        elif SETTINGS.round_tf32 and a.dtype.scalar == tl.float32 and precision in TF32:
            product = TF32[precision](a.data, b.data)
        else:
            return dot(self, a, b, d, precision, *rest)
        return handle_of(product + d.data, d.dtype.scalar)

    BUILDER.create_dot = create_dot


def one_tf32(a: Array, b: Array) -> Array:
    product: Array = np.matmul(cut_tf32(a), cut_tf32(b))
    return product


def three_tf32(a: Array, b: Array) -> Array:
    """a·b of a = hi + lo: the small terms first, without what infinities make of them, as Triton's own pass does."""
    (a_hi, a_lo), (b_hi, b_lo) = ((round_tf32(x), round_tf32(x - round_tf32(x))) for x in (a, b))
    with np.errstate(invalid="ignore"):
        small: Array = np.matmul(a_lo, b_hi) + np.matmul(a_hi, b_lo)
    small[np.isnan(small)] = 0
    small += np.matmul(a_hi, b_hi)
    return small


TF32: dict[Any, Callable[[Array, Array], Array]] = {
    stock._ir.INPUT_PRECISION.TF32: one_tf32,
    stock._ir.INPUT_PRECISION.TF32x3: three_tf32,
}


def repair_reductions() -> None:
    """Sums, maxima and scans that numpy does at once."""
    for owner, names in ((stock.ReduceOps, ("sum", "min_max")), (stock.ScanOps, ("cumsum", "cumprod"))):
        for name in names:
            setattr(owner, name, in_float32(getattr(owner, name)))


def in_float32(reduce: Callable[..., Any]) -> Callable[..., Any]:
    def reduce_bf16(self: Any, given: Any, *args: Any, **kwargs: Any) -> Any:
        tensor = given[0] if isinstance(given, tuple) else given
        if tensor.dtype != tl.bfloat16:
            return reduce(self, given, *args, **kwargs)
        result = reduce(self, retyped(tensor, tl.float32), *args, **kwargs)
        if isinstance(result, (list, tuple)):
            return type(result)(narrowed(part) for part in result)
        return narrowed(result)

    def narrowed(tensor: Any) -> Any:
        return retyped(tensor, tl.bfloat16) if tensor.dtype == tl.float32 else tensor

    return reduce_bf16


def repair_atomics() -> None:
    """Atomic arithmetic on bf16 would be done on the bits: an error, but for an exchange."""
    rmw = BUILDER.create_atomic_rmw

    def create_atomic_rmw(self: Any, op: Any, ptr: Any, val: Any, *rest: Any) -> Any:
        if is_stored_as_bits(val.dtype.scalar) and op != stock._ir.ATOMIC_OP.XCHG:
            raise TypeError(f"triton_compat: atomic arithmetic on {val.dtype.scalar.name}")
        return rmw(self, op, ptr, val, *rest)

    BUILDER.create_atomic_rmw = create_atomic_rmw


def repair_maxnum() -> None:
    """``tl.maximum`` and ``tl.minimum`` of a number and NaN are the number, unless NaN is to propagate."""
    BUILDER.create_maxnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmax)
    BUILDER.create_minnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmin)


def loses_numbers_to_nan() -> bool:
    nan, one = (stock.TensorHandle(np.array([x], np.float32), tl.float32) for x in (np.nan, 1.0))
    return bool(np.isnan(stock.interpreter_builder.create_maxnumf(nan, one).data[0]))


def repair_bf16_constants() -> None:
    """``x * 1.5`` for a bf16 x: the constant."""
    BUILDER.get_bf16 = lambda self, value: handle_of(self.get_fp32(value).data, tl.bfloat16)


def repair_index() -> None:
    """Loop bounds: a scalar tensor holds an array of one element, which numpy 2.4 takes for no integer."""
    patch = stock._patch_lang_tensor

    def _patch_lang_tensor(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    stock._patch_lang_tensor = _patch_lang_tensor


def is_no_index() -> bool:
    """Whether stock can't make an integer of a scalar tensor."""
    scalar = type("Scalar", (), {"handle": stock.interpreter_builder.get_int32(3)})
    stock._patch_lang_tensor(scalar, stock._LangPatchScope())
    try:
        return operator.index(scalar()) != 3
    except TypeError:
        return True


def always() -> bool:
    return True


REPAIRS: dict[str, tuple[Callable[[], bool], Callable[[], None]]] = {
    "maxnum": (loses_numbers_to_nan, repair_maxnum),
    "arithmetic": (always, repair_arithmetic),
    "fma": (always, repair_fma),
    "casts": (always, repair_casts),
    "bf16 constants": (lambda: not hasattr(BUILDER, "get_bf16"), repair_bf16_constants),
    "dot": (always, repair_dot),
    "reductions": (always, repair_reductions),
    "atomics": (always, repair_atomics),
    "index": (is_no_index, repair_index),
}
"""Every repair: whether this Triton needs it, and what makes it."""
