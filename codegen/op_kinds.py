"""What ops of a program have in common, whatever language they are written in. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

FLOAT_FUNCTIONS = ("tanh", "exp", "exp2", "log", "sqrt", "rsqrt", "sigmoid", "erf", "floor", "ceil", "sin", "cos")
COMPARES = ("lt", "le", "gt", "ge", "eq", "ne")
BOOLEAN_ARITHMETIC = {"add": "or", "max": "or", "mul": "and", "min": "and", "sub": "ne", "ne": "ne"}
"""What arithmetic on truth values is."""

ARITHMETIC = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
}
"""Text of ops that every language writes alike."""
INFIX = {
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
}
"""Text of ops that Python's tensor libraries write alike."""

Kind = Literal["f", "i", "b"]
"""Float, integer, truth value."""
_KINDS: dict[str, Kind] = {
    "b1": "b",
    **dict.fromkeys(("f64", "f32", "f16", "bf16"), "f"),
    **dict.fromkeys(("i64", "i32", "i16", "i8", "u8"), "i"),
}


def kind_of(dtype: str) -> Kind:
    """The kind of a plan dtype. Raises ValueError for one that formulas can't hold."""
    try:
        return _KINDS[dtype]
    except KeyError:
        raise ValueError(f"a formula of dtype {dtype} cannot be written in a kernel") from None


def spelled(table: Mapping[str, str], op: str, operands: tuple[str, ...], language: str) -> str:
    """The text of ``op`` on operands, by a language's table. Raises ValueError for an op it lacks."""
    if op not in table:
        raise ValueError(f"cannot write op {op!r} in {language}: it has no text in the table of that language")
    return table[op].format(*operands)
