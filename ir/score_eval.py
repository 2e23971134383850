"""Numeric evaluation of score formulas with numpy: in float64, or rounding after each operation as the source wrote."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from attnc.ir.index_eval import Env
from attnc.ir.index_eval import evaluate as evaluate_index
from attnc.ir.score_nodes import Node
from attnc.ir.score_rewrite import walk
from attnc.ir.types import DType

_NUMPY: dict[DType, Any] = {
    DType.F64: np.float64, DType.F32: np.float32, DType.F16: np.float16, DType.BF16: np.float32, DType.B1: np.bool_,
    DType.I64: np.int64, DType.I32: np.int32, DType.I16: np.int16, DType.I8: np.int8,
    DType.U64: np.uint64, DType.U32: np.uint32, DType.U16: np.uint16, DType.U8: np.uint8,
}  # fmt: skip


def evaluate(root: Node, env: Env, exact: bool = True) -> Any:
    """The value of a score formula, an array where an axis or ``env.qk`` is one.

    ``exact``: every float is float64 (constants as written). Otherwise each node is rounded to its own dtype (bf16 is
    held in float32 arrays). Raises KeyError for a name without a value, ValueError for a dtype numpy has no form of.
    """
    values: dict[Node, Any] = {}
    with np.errstate(all="ignore"):
        for node in walk(root):
            result = _value(node, [values[a] for a in node.args], env, exact)
            values[node] = (
                np.asarray(result, np.float64)[()] if exact and node.dtype.is_float else round_to(result, node.dtype)
            )
    return values[root]


def _value(node: Node, args: list[Any], env: Env, exact: bool) -> Any:
    if node.op == "qk":
        if env.qk is None:
            raise KeyError("qk")
        return env.qk
    if node.op == "const":
        return node.value
    if node.op == "index":
        return evaluate_index(node.value, env)
    if node.op == "load":
        name, indices = node.value
        return env.read(name, tuple(evaluate_index(i, env) for i in indices))
    if node.op == "cast":
        return np.trunc(args[0]) if node.dtype.is_int else args[0]
    if node.op == "where":
        return np.where(*args)
    if not exact and node.args[0].dtype in (DType.BF16, DType.F16):
        # torch computes half precision in f32 and rounds the result
        args = [np.asarray(a, np.float32) if np.asarray(a).dtype.kind == "f" else a for a in args]
    return _OPS[node.op](*args)


def round_to(value: Any, dtype: DType) -> Any:
    """``value`` in the numpy form of ``dtype``; bf16 is rounded to nearest even and held in float32."""
    if dtype not in _NUMPY:
        raise ValueError(f"evaluating a score: {dtype.value} has no numpy form")
    array = np.asarray(value, _NUMPY[dtype])
    if dtype is DType.BF16:
        # +0x7fff + lowest kept bit, then drop 16 bits: round to nearest, ties to even; NaN stays as it is
        bits = np.atleast_1d(array).view(np.uint32)
        rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).astype(np.uint32)
        array = np.where(np.isnan(array), array, rounded.view(np.float32).reshape(array.shape)).astype(np.float32)
    return array[()]


_OPS: dict[str, Callable[..., Any]] = {
    "neg": np.negative, "abs": np.abs, "tanh": np.tanh, "exp": np.exp, "exp2": np.exp2, "log": np.log, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[float]),
    "floor": np.floor, "ceil": np.ceil, "sin": np.sin, "cos": np.cos, "isnan": np.isnan,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "min": np.minimum, "max": np.maximum,
    "pow": np.power, "floordiv": np.floor_divide, "mod": np.mod,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
}  # fmt: skip
