"""The text of each op in Triton: a table."""

from __future__ import annotations

from attnc.codegen.op_kinds import ARITHMETIC, FLOAT_FUNCTIONS, INFIX, spelled

EXPRESSIONS: dict[str, str] = {
    **ARITHMETIC,
    "abs": "tl.abs({0})",
    "min": "tl.minimum({0}, {1})",
    "max": "tl.maximum({0}, {1})",
    "floordiv": "floor_div({0}, {1})",
    "mod": "floor_mod({0}, {1})",
    "where": "tl.where({0}, {1}, {2})",
    "not": "{0} == 0",
    "isnan": "{0} != {0}",
    **INFIX,
    "tanh_close": "tanh_close({0})",
    "tanh_fast": "tanh_fast({0})",
    "sigmoid": "sigmoid({0})",
    **{name: f"tl.{name}({{0}})" for name in FLOAT_FUNCTIONS if name not in ("tanh", "sigmoid")},
}
FLOATS = {
    "min": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "max": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "floordiv": "float_floor_div({0}, {1})",
    "mod": "float_floor_mod({0}, {1})",
    "pow": "float_power({0}, {1})",
}
"""What differs on floats. torch's minimum and maximum let NaN through."""

TYPES = {
    "f64": "fp64",
    "f32": "fp32",
    "f16": "fp16",
    "bf16": "bf16",
    "i64": "i64",
    "i32": "i32",
    "i16": "i16",
    "i8": "i8",
    "u8": "u8",
    "b1": "i1",
}
"""Triton's names of element types, in signatures."""


def expression(op: str, *operands: str, floats: bool = False) -> str:
    """Triton text of ``op`` on operands that are names, calls or literals. Raises ValueError for an unknown op."""
    return spelled({**EXPRESSIONS, **FLOATS} if floats else EXPRESSIONS, op, operands, "Triton")


def element_type(dtype: str) -> str:
    """Triton's name of an element type. Raises ValueError for a dtype kernels do not read."""
    try:
        return TYPES[dtype]
    except KeyError:
        raise ValueError(f"Triton kernels do not read {dtype}; they read {', '.join(TYPES)}") from None
