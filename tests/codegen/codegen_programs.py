"""Formulas by operator overloading, and an interpreter of programs that shares nothing with the emitter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from attnc.codegen.plan import Instr, Program

Array = Any
FLOATS = {"f64": 8, "f32": 4, "f16": 2, "bf16": 1}


@dataclass(frozen=True, eq=False)
class Expr:
    op: str
    dtype: str
    args: tuple[Expr, ...] = ()
    value: Any = None

    def _binary(self, op: str, other: Any, reverse: bool = False, dtype: str | None = None) -> Expr:
        if not isinstance(other, Expr):
            other = const(other, self.dtype if isinstance(other, float) and self.dtype in FLOATS else None)
        a, b = (other, self) if reverse else (self, other)
        return Expr(op, dtype or promote(a.dtype, b.dtype), (a, b))

    def __add__(self, o: Any) -> Expr:
        return self._binary("add", o)

    def __sub__(self, o: Any) -> Expr:
        return self._binary("sub", o)

    def __rsub__(self, o: Any) -> Expr:
        return self._binary("sub", o, True)

    def __mul__(self, o: Any) -> Expr:
        return self._binary("mul", o)

    def __truediv__(self, o: Any) -> Expr:
        return self._binary("div", o)

    def __floordiv__(self, o: Any) -> Expr:
        return self._binary("floordiv", o)

    def __mod__(self, o: Any) -> Expr:
        return self._binary("mod", o)

    def __le__(self, o: Any) -> Expr:
        return self._binary("le", o, dtype="b1")

    def __lt__(self, o: Any) -> Expr:
        return self._binary("lt", o, dtype="b1")

    def __gt__(self, o: Any) -> Expr:
        return self._binary("gt", o, dtype="b1")

    def __ge__(self, o: Any) -> Expr:
        return self._binary("ge", o, dtype="b1")

    def __and__(self, o: Expr) -> Expr:
        return Expr("and", "b1", (self, o))

    def __or__(self, o: Expr) -> Expr:
        return Expr("or", "b1", (self, o))

    def __invert__(self) -> Expr:
        return Expr("not", "b1", (self,))

    def __neg__(self) -> Expr:
        return Expr("neg", self.dtype, (self,))

    def eq(self, o: Any) -> Expr:
        return self._binary("eq", o, dtype="b1")

    def ne(self, o: Any) -> Expr:
        return self._binary("ne", o, dtype="b1")


def promote(a: str, b: str) -> str:
    floats = [d for d in (a, b) if d in FLOATS]
    return max(floats, key=FLOATS.__getitem__) if floats else "i64"


def const(value: Any, dtype: str | None = None) -> Expr:
    return Expr("const", dtype or {bool: "b1", int: "i64", float: "f32"}[type(value)], (), value)


def axis(name: str) -> Expr:
    return Expr("axis", "i64", (), name)


def size(name: str) -> Expr:
    return Expr("size", "i64", (), name)


def load(number: int, dtype: str, *indices: Expr) -> Expr:
    return Expr("load", dtype, indices, number)


def call(op: str, *args: Expr, dtype: str | None = None) -> Expr:
    return Expr(op, dtype or args[0].dtype, args)


def cast(x: Expr, dtype: str) -> Expr:
    return Expr("cast", dtype, (x,))


def where(c: Expr, a: Expr, b: Expr) -> Expr:
    return Expr("where", promote(a.dtype, b.dtype), (c, a, b))


qk = Expr("qk", "f32")
Q, K, TQ, TK = axis("q"), axis("k"), axis("tq"), axis("tk")
Q_LEN, K_LEN = size("|q|"), size("|k|")


def minimum(a: Expr, b: Expr) -> Expr:
    return Expr("min", promote(a.dtype, b.dtype), (a, b))


def maximum(a: Expr, b: Expr) -> Expr:
    return Expr("max", promote(a.dtype, b.dtype), (a, b))


def program(root: Expr) -> Program:
    """Straight-line code; an expression object used twice becomes one instruction."""
    place: dict[int, int] = {}
    code: list[Instr] = []

    def visit(e: Expr) -> int:
        if id(e) not in place:
            args = tuple(visit(a) for a in e.args)
            code.append(Instr(e.op, e.dtype, args, e.value))
            place[id(e)] = len(code) - 1
        return place[id(e)]

    visit(root)
    return tuple(code)


def rounded(x: Array, dtype: str) -> Array:
    """Float64 numbers that ``dtype`` holds, infinities on overflow."""
    torch_dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}[dtype]
    return torch.tensor(np.asarray(x, dtype=np.float64)).to(torch_dtype).double().numpy()


def evaluate(code: Program, env: Mapping[str, Array], as_written: bool = False) -> Array:
    """The value over numpy arrays. ``env``: ``qk``, axes and sizes by name, sides as ``t0``, ``t1``, …

    Floats are float64; with ``as_written`` each is rounded to its dtype.
    """
    values: list[Array] = []
    with np.errstate(all="ignore"):
        for instr in code:
            x = _apply(instr, [values[a] for a in instr.args], env)
            if instr.dtype in FLOATS:
                x = rounded(x, instr.dtype) if as_written else np.asarray(x, dtype=np.float64)
            elif instr.dtype == "b1":
                x = np.asarray(x, dtype=bool)
            elif instr.op == "cast":
                x = np.trunc(x).astype(np.int64) if np.asarray(x).dtype.kind == "f" else np.asarray(x, dtype=np.int64)
            values.append(x)
    return values[-1]


def _apply(instr: Instr, a: list[Array], env: Mapping[str, Array]) -> Array:
    match instr.op:
        case "const":
            return np.asarray(instr.value)
        case "qk":
            return env["qk"]
        case "axis" | "size":
            return np.asarray(env[str(instr.value)])
        case "load":
            return env[f"t{instr.value}"][tuple(np.broadcast_arrays(*a))]
        case "cast":
            return a[0]
        case "rsqrt":
            return 1 / np.sqrt(a[0])
        case "sigmoid":
            return 1 / (1 + np.exp(-a[0]))
        case "erf":
            return torch.special.erf(torch.as_tensor(a[0])).numpy()
        case "where":
            return np.where(a[0], a[1], a[2])
    return NUMPY[instr.op](*a)


NUMPY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide, "neg": np.negative, "abs": np.abs,
    "min": np.minimum, "max": np.maximum, "pow": np.power, "floordiv": np.floor_divide, "mod": np.mod, "tanh": np.tanh,
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "sin": np.sin,
    "cos": np.cos, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not, "isnan": np.isnan,
}  # fmt: skip
