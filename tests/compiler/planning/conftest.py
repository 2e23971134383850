"""A reference evaluator of programs, and the set of tiles that segments visit."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from attnc.codegen.plan import Program

_OPS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "abs": abs,
    "min": min,
    "max": max,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": lambda x, y: x and y,
    "or": lambda x, y: x or y,
    "not": operator.not_,
    "where": lambda c, x, y: x if c else y,
    "div": operator.truediv,
}


def run(
    program: Program, axes: Mapping[str, int], sizes: Mapping[str, int], sides: Mapping[int, Any] | None = None
) -> Any:
    """The value of a program at one point; casts keep the number."""
    values: list[Any] = []
    for instr in program:
        args = [values[a] for a in instr.args]
        if instr.op in ("const", "qk"):
            values.append(instr.value)
        elif instr.op == "axis":
            values.append(axes[str(instr.value)])
        elif instr.op == "size":
            values.append(sizes[str(instr.value)])
        elif instr.op == "load":
            assert sides is not None and isinstance(instr.value, int)
            values.append(sides[instr.value][tuple(args)])
        elif instr.op == "cast":
            values.append(args[0])
        else:
            values.append(_OPS[instr.op](*args))
    return values[-1]


@pytest.fixture
def run_program() -> Callable[..., Any]:
    return run
