"""What makes a type well formed in a graph: its dimensions are over declared sizes, strides and atoms fit its rank."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache

import sympy

from attnc.ir.lexer import is_identifier
from attnc.ir.types import Dim, DType, NoneType, OpaqueType, ScalarType, TensorType, TupleType, Type, size

SCALAR_KINDS = ("int", "float", "bool")


def type_problems(type: Type, sizes: Collection[str]) -> Iterator[str]:
    """What is wrong with a type, a sentence each."""
    match type:
        case TensorType():
            yield from _tensor(type, sizes)
        case ScalarType():
            if type.kind not in SCALAR_KINDS:
                yield f"scalar kind {type.kind!r} is none of {', '.join(SCALAR_KINDS)}"
            if type.expr is not None:
                yield from _dim(type.expr, sizes)
        case TupleType():
            for element in type.elements:
                yield from type_problems(element, sizes)
        case NoneType() | OpaqueType():
            pass
        case _:
            yield f"{type!r} is not a type"


def _tensor(type: TensorType, sizes: Collection[str]) -> Iterator[str]:
    if not isinstance(type.dtype, DType):
        yield f"{type.dtype!r} is not a dtype"
    for dim in type.shape:
        yield from _dim(dim, sizes)
        if isinstance(dim, int) and dim < 0:
            yield f"a dimension has the negative length {dim}"
    for dim in type.strides or ():
        yield from _dim(dim, sizes)
    if type.strides is not None and len(type.strides) != type.rank:
        yield f"{len(type.strides)} strides for rank {type.rank}"
    if type.atoms is not None and len(type.atoms) != type.rank:
        yield f"atoms of {len(type.atoms)} dimensions for rank {type.rank}"
    for atom in (a for dim in type.atoms or () for a in dim):
        if not (is_identifier(atom) if isinstance(atom, str) else atom > 0):
            yield f"atom {atom!r} is neither an axis name nor a positive number"


def _dim(dim: Dim, sizes: Collection[str]) -> Iterator[str]:
    if isinstance(dim, int) and not isinstance(dim, bool):
        return
    if not isinstance(dim, sympy.Expr):
        yield f"dimension {dim!r} is neither an int nor an integer expression"
        return
    for symbol in _symbols(dim):
        if symbol != size(symbol.name):
            yield f"symbol {symbol} of dimension {dim} is not a size (ir.types.size makes one)"
        elif symbol.name not in sizes:
            yield f"size {symbol} of dimension {dim} is not declared in the graph's sizes"


@lru_cache(maxsize=16384)
def _symbols(dim: sympy.Expr) -> tuple[sympy.Symbol, ...]:
    return tuple(sorted(dim.free_symbols, key=str))
