"""The text of constants: ``constant @name: type``, with the numbers where the payload is a small numpy array.

Other payloads belong to the host (tensors, submodules) and are declared only; reading gives :data:`UNBOUND` for them,
unless the caller passes the payloads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnc.ir.argtext import parse_args, show_arg
from attnc.ir.graph import Graph
from attnc.ir.lexer import Cursor, show_name
from attnc.ir.types import DType, TensorType, Type
from attnc.ir.typetext import parse_type, show_type

INLINE_LIMIT = 16
"""Arrays of at most this many elements are written out."""

UNBOUND = None
"""The payload of a constant whose text doesn't hold it."""

_NUMPY = {
    DType.F64: np.float64,
    DType.F32: np.float32,
    DType.F16: np.float16,
    DType.I64: np.int64,
    DType.I32: np.int32,
    DType.I16: np.int16,
    DType.I8: np.int8,
    DType.U8: np.uint8,
    DType.U16: np.uint16,
    DType.U32: np.uint32,
    DType.U64: np.uint64,
    DType.B1: np.bool_,
    DType.C64: np.complex64,
    DType.C128: np.complex128,
}
_DTYPES = {np.dtype(kind): dtype for dtype, kind in _NUMPY.items()}


def show_constant(graph: Graph, name: str) -> str:
    """The declaration of a constant, its type taken from the array or from the first op that reads it."""
    payload = graph.constants[name]
    head = f"constant {show_name('@', name)}"
    if is_inline(payload):
        type = array_type(payload)
        numbers = ", ".join(_show_number(x, type.dtype) for x in payload.reshape(-1))
        return f"{head}: {show_type(type)} = [{numbers}]"
    read = constant_type(graph, name)
    return head if read is None else f"{head}: {show_type(read)}"


def is_inline(payload: Any) -> bool:
    """Whether the text holds the payload: a numpy array of few elements."""
    return isinstance(payload, np.ndarray) and payload.size <= INLINE_LIMIT and payload.dtype in _DTYPES


def array_type(array: np.ndarray[Any, Any]) -> TensorType:
    """The type of an array whose dtype the IR has. Raises KeyError for another."""
    return TensorType(_DTYPES[array.dtype], tuple(array.shape))


def constant_type(graph: Graph, name: str) -> Type | None:
    """The type the graph's own ops give a constant, None where none reads it."""
    return next((op.results[0].type for op in graph.ops if _reads(op.name, op.attrs, name) and op.results), None)


def _reads(op: str, attrs: dict[str, Any], name: str) -> bool:
    return op == "ir.constant" and attrs.get("name") == name


def _show_number(number: Any, dtype: DType) -> str:
    if dtype.is_complex:
        return show_arg(complex(number))
    if dtype.is_float:  # numpy's shortest text that reads back to the same float of this width
        text = str(number)
        return text if set(text) & set(".ein") else f"{text}.0"
    return show_arg(number.item())


def parse_constant(cursor: Cursor) -> tuple[str, Type | None, Any]:
    """Read a declaration: name, type where given, and payload or :data:`UNBOUND`. Raises ParseError."""
    cursor.expect("constant")
    name = cursor.unquote(cursor.take("symbol", "the constant's @name"), 1)
    type = parse_type(cursor) if cursor.accept(":") else None
    if not cursor.at("="):
        return name, type, UNBOUND
    return name, type, _array(cursor, type)


def _array(cursor: Cursor, type: Type | None) -> np.ndarray[Any, Any]:
    start = cursor.expect("=")
    cursor.expect("[", "before the numbers of a constant")
    numbers = parse_args(cursor, {}, "]")
    if not isinstance(type, TensorType) or type.dtype not in _NUMPY or not all(isinstance(d, int) for d in type.shape):
        cursor.fail("a constant with numbers needs a tensor type with numeric shape and a numpy dtype", start)
    try:
        return np.array(numbers, dtype=_NUMPY[type.dtype]).reshape([int(d) for d in type.shape])
    except (TypeError, ValueError, OverflowError) as error:
        cursor.fail(f"the numbers don't fit {show_type(type)}: {error}", start)
