"""The text of each op: a table. Names are those of ``attnc/math.h``, which overloads them for scalars and vectors."""

from __future__ import annotations

from attnc.codegen.op_kinds import ARITHMETIC, COMPARES, FLOAT_FUNCTIONS, spelled

EXPRESSIONS: dict[str, str] = {
    **ARITHMETIC,
    "abs": "abs({0})",
    "min": "min({0}, {1})",
    "max": "max({0}, {1})",
    "pow": "power({0}, {1})",
    "floordiv": "floor_div({0}, {1})",
    "mod": "floor_mod({0}, {1})",
    "where": "where({0}, {1}, {2})",
    "and": "both({0}, {1})",
    "or": "either({0}, {1})",
    "not": "negate({0})",
    "isnan": "isnan({0})",
    **{name: f"{name}({{0}})" for name in FLOAT_FUNCTIONS},
    **{name: f"{name}({{0}}, {{1}})" for name in COMPARES},
}

C_TYPES = {
    "f64": "double",
    "f32": "float",
    "f16": "f16",
    "bf16": "bf16",
    "i64": "int64_t",
    "i32": "int32_t",
    "i16": "int16_t",
    "i8": "int8_t",
    "u8": "uint8_t",
    "b1": "b1",
}
"""Element types in memory, in the order of the C interface's dtype codes."""

DTYPE_CODES = {name: code for code, name in enumerate(C_TYPES)}


def expression(op: str, *operands: str) -> str:
    """C++ text of ``op`` on operands that are names or calls. Raises ValueError for an unknown op."""
    return spelled(EXPRESSIONS, op, operands, "C++")


def c_type(dtype: str) -> str:
    """The C++ element type. Raises ValueError for a dtype kernels do not read."""
    try:
        return C_TYPES[dtype]
    except KeyError:
        raise ValueError(f"C++ kernels do not read {dtype}; they read {', '.join(C_TYPES)}") from None
