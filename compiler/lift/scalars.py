"""Host integers: sizes read from tensors and python arithmetic on them, as expressions of named sizes."""

from __future__ import annotations

from collections.abc import Callable

import sympy

from attnc.compiler.lift.element import Refused
from attnc.ir.types import ScalarType, TensorType
from attnc.ir.values import Arg, Op, Value

ARITHMETIC: dict[str, Callable[..., sympy.Expr]] = {
    "py.add": lambda a, b: a + b,
    "py.sub": lambda a, b: a - b,
    "py.mul": lambda a, b: a * b,
    "py.neg": lambda a: -a,
    "py.floordiv": lambda a, b: sympy.floor(a / b),
    "py.mod": sympy.Mod,
    "py.sym_max": sympy.Max,
    "py.max": sympy.Max,
    "py.sym_min": sympy.Min,
    "py.min": sympy.Min,
}


def scalar(arg: Arg) -> sympy.Expr:
    """A host integer argument as an expression of sizes. Raises Refused where its value isn't known."""
    if isinstance(arg, int):
        return sympy.Integer(int(arg))
    if not isinstance(arg, Value) or not isinstance(arg.type, ScalarType) or arg.type.kind != "int":
        raise Refused(f"{arg!r} is not a host integer")
    if arg.type.expr is not None:
        return sympy.sympify(arg.type.expr)
    if arg.op is None:
        raise Refused(f"host integer %{arg.name} has no known value")
    return _evaluate(arg.op)


def _evaluate(op: Op) -> sympy.Expr:
    if op.name in ("aten.sym_size.int", "aten.size.int"):
        tensor, dim = op.arg(0, "self"), op.arg(1, "dim")
        if isinstance(tensor, Value) and isinstance(tensor.type, TensorType) and isinstance(dim, int):
            return sympy.sympify(tensor.type.shape[dim])
    if op.name in ARITHMETIC:
        arguments = [scalar(a) for a in op.args]
        if op.name in ("py.floordiv", "py.mod") and not arguments[1].is_positive:
            raise Refused(f"{op.name} by {arguments[1]}")
        return ARITHMETIC[op.name](*arguments)
    raise Refused(f"host integer from {op.name}")
