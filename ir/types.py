"""Types of IR values: dtypes, symbolic dimensions, axis atoms.

A dimension is an ``int`` or an integer sympy expression over named sizes. Sizes are positive integers
(a dimension of length 0 is always a literal 0), which is what the torch and ONNX frontends guarantee.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import sympy

Dim: TypeAlias = int | sympy.Expr
"""A dimension: a literal, or an integer expression over named sizes (:func:`size`)."""

Atom: TypeAlias = str | int
"""A row-major factor of a dimension: a named axis (``B``, ``S``, ``Q``, ``K``, ``E``, ``R``) or a literal."""


class DType(enum.Enum):
    """Element types, by their text-form name."""

    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    F8E4M3 = "f8e4m3"
    F8E5M2 = "f8e5m2"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    B1 = "b1"
    C64 = "c64"
    C128 = "c128"

    @property
    def is_float(self) -> bool:
        return self.value[0] == "f" or self is DType.BF16

    @property
    def is_int(self) -> bool:
        """True for signed and unsigned integers, not for booleans."""
        return self.value[0] in "iu"

    @property
    def is_complex(self) -> bool:
        return self.value[0] == "c"

    @property
    def bits(self) -> int:
        """Bits of one element as stored (a boolean takes a byte)."""
        if self is DType.B1:
            return 8
        digits = self.value.lstrip("bfiuc").split("e")[0]
        return int(digits)


def size(name: str) -> sympy.Symbol:
    """The symbol of a named size: a positive integer. Equal names give equal symbols."""
    return sympy.Symbol(name, integer=True, positive=True)


def as_dim(value: Dim) -> Dim:
    """Normalise a dimension: sympy integers become ``int``; expressions are left as they are."""
    if isinstance(value, sympy.Integer):
        return int(value)
    return value


def same_dim(x: Dim, y: Dim) -> bool:
    """Whether two dimensions are equal for every value of their sizes (False where that can't be shown)."""
    return bool(x == y or sympy.expand(sympy.sympify(x) - sympy.sympify(y)) == 0)


@lru_cache(maxsize=4096)
def contiguous_strides(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Row-major strides in elements; a dimension of length 0 counts as 1, as in torch."""
    strides: list[Dim] = []
    step: Dim = 1
    for length in reversed(shape):
        strides.append(step)
        step = as_dim(step * (1 if length == 0 else length))
    return tuple(reversed(strides))


@dataclass(frozen=True)
class TensorType:
    """A tensor: dtype, shape, device, and where known its strides (elements) and the atoms of each dimension.

    ``strides`` None is taken as contiguous.
    """

    dtype: DType
    shape: tuple[Dim, ...]
    device: str = "cpu"
    strides: tuple[Dim, ...] | None = None
    atoms: tuple[tuple[Atom, ...], ...] | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """True for row-major strides, and where strides aren't known."""
        return self.strides is None or self.strides == contiguous_strides(self.shape)


@dataclass(frozen=True)
class ScalarType:
    """A host scalar (torch's SymInt, SymFloat, SymBool); ``expr`` is its symbolic value where known."""

    kind: str
    """``int``, ``float`` or ``bool``."""
    expr: Dim | None = None


@dataclass(frozen=True)
class TupleType:
    """Several results in one value, read by ``py.getitem``."""

    elements: tuple[Type, ...]


@dataclass(frozen=True)
class NoneType:
    """The type of an op with no result."""


@dataclass(frozen=True)
class OpaqueType:
    """A host object the IR only carries (a submodule, an autocast handle)."""

    name: str


Type = TensorType | ScalarType | TupleType | NoneType | OpaqueType
