"""What the steps of a host program are made of: arguments, sizes as postfix programs, and their JSON.

Standard library only: a program can be read and checked without torch.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Number: TypeAlias = int | float | bool

SizeProgram: TypeAlias = tuple[int | float | str, ...]
"""A number in postfix form. A token is a number, a named size (``B``), the number a step left in a register (``#3``) or
an operation on the topmost entries of the stack (``.mul``); one entry is left. ``("B", 2, ".mul")`` is 2·B.
"""

LONGEST = 4096
"""Tokens a size program may have, and bits a power or a shift may give: a program from a file must not run for ever."""
_DEEPEST = 16
"""Lists within lists of an argument."""


def _power(base: Number, exponent: Number) -> Number:
    """Raises OverflowError for a power that is too long a number."""
    if isinstance(base, int) and isinstance(exponent, int) and abs(exponent) * base.bit_length() > LONGEST:
        raise OverflowError(f"a size is {base}**{exponent}")
    return base**exponent


def _shifted(number: int, by: int) -> Number:
    """Raises OverflowError for a shift that gives too long a number."""
    if by > LONGEST:
        raise OverflowError(f"a size is {number}<<{by}")
    return number << by


OPERATIONS: dict[str, tuple[int, Callable[..., Number]]] = {
    "add": (2, operator.add),
    "sub": (2, operator.sub),
    "mul": (2, operator.mul),
    "neg": (1, operator.neg),
    "pos": (1, operator.pos),
    "floordiv": (2, operator.floordiv),
    "mod": (2, operator.mod),
    "truediv": (2, operator.truediv),
    "pow": (2, _power),
    "abs": (1, abs),
    "max": (2, max),
    "min": (2, min),
    "lshift": (2, _shifted),
    "rshift": (2, operator.rshift),
    "int": (1, int),
    "float": (1, float),
    "sqrt": (1, math.sqrt),
    "round": (1, round),
    "floor": (1, math.floor),
    "ceil": (1, math.ceil),
    "trunc": (1, math.trunc),
    "eq": (2, operator.eq),
    "ne": (2, operator.ne),
    "lt": (2, operator.lt),
    "le": (2, operator.le),
    "gt": (2, operator.gt),
    "ge": (2, operator.ge),
    "and": (2, operator.and_),
    "or": (2, operator.or_),
    "xor": (2, operator.xor),
    "not": (1, operator.not_),
    "ite": (3, lambda condition, then, other: then if condition else other),
}
"""Operation of a size program: how many entries it takes, and what it makes of them. Python's integers: ``//`` rounds
down, ``%`` has the sign of the divisor."""


@dataclass(frozen=True)
class Register:
    """The value an input or a step left."""

    index: int


@dataclass(frozen=True)
class Constant:
    """A tensor of the mapping the program is bound to."""

    name: str


@dataclass(frozen=True)
class Size:
    """A number: the result of one of the program's size programs."""

    index: int


@dataclass(frozen=True)
class Literal:
    """An object of torch by name, or a float that JSON has no number for (``nan``, ``inf``, ``-inf``)."""

    kind: str
    """``dtype`` (``f32``, ``i64``, …), ``device``, ``layout``, ``memory_format`` or ``float``."""
    text: str


Arg: TypeAlias = "bool | int | float | str | Register | Constant | Size | Literal | tuple[Arg, ...] | None"

_KINDS = ("dtype", "device", "layout", "memory_format", "float")


def leaves(arg: Arg) -> Iterator[Arg]:
    """What an argument is made of, lists opened."""
    if isinstance(arg, tuple):
        for item in arg:
            yield from leaves(item)
    else:
        yield arg


def registers_of(program: SizeProgram) -> list[int]:
    """The registers a size program reads."""
    return [int(token[1:]) for token in program if isinstance(token, str) and token[0] == "#"]


def evaluate(program: SizeProgram, names: Mapping[str, Number]) -> Number:
    """The number a size program gives; ``names`` has its named sizes, and registers by their token.

    Raises ZeroDivisionError as Python does.
    """
    stack: list[Number] = []
    for token in program:
        if not isinstance(token, str):
            stack.append(token)
        elif token[0] == ".":
            count, function = OPERATIONS[token[1:]]
            stack[-count:] = [function(*stack[-count:])]
        else:
            stack.append(names[token])
    return stack[0]


def check_size(program: SizeProgram, names: Collection[str]) -> None:
    """Raise ValueError where a size program is none over these named sizes and some registers."""
    depth = 0
    if len(program) > LONGEST:
        raise ValueError(f"a size program has {len(program)} tokens, more than {LONGEST}")
    for token in program:
        if isinstance(token, str) and token[:1] == ".":
            if token[1:] not in OPERATIONS:
                raise ValueError(f"no operation {token} in the size program {list(program)}")
            count = OPERATIONS[token[1:]][0]
            if depth < count:
                raise ValueError(f"{token} lacks an operand in the size program {list(program)}")
            depth -= count - 1
        else:
            depth += 1
            known = token in names or _is_register(token) if isinstance(token, str) else isinstance(token, int | float)
            if not known:
                raise ValueError(f"no size {token!r} in the size program {list(program)}")
    if depth != 1:
        raise ValueError(f"the size program {list(program)} leaves {depth} numbers, not one")


def _is_register(token: str) -> bool:
    return token[:1] == "#" and token[1:].isascii() and token[1:].isdigit()


def encode(arg: Arg) -> Any:
    """The JSON of an argument: plain values and lists as they are, the rest as an object with one key."""
    if isinstance(arg, tuple):
        return [encode(item) for item in arg]
    if isinstance(arg, Register):
        return {"register": arg.index}
    if isinstance(arg, Constant):
        return {"constant": arg.name}
    if isinstance(arg, Size):
        return {"size": arg.index}
    if isinstance(arg, Literal):
        return {arg.kind: arg.text}
    return arg


def decode(data: Any, depth: int = 0) -> Arg:
    """The argument :func:`encode` wrote. Raises ValueError for anything else."""
    if isinstance(data, list):
        if depth == _DEEPEST:
            raise ValueError("an argument has lists within lists within lists")
        return tuple(decode(item, depth + 1) for item in data)
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, dict) and len(data) == 1:
        ((kind, value),) = data.items()
        if kind in ("register", "size") and type(value) is int and value >= 0:
            return Register(value) if kind == "register" else Size(value)
        if isinstance(value, str) and (kind in _KINDS or kind == "constant"):
            return Constant(value) if kind == "constant" else Literal(kind, value)
    raise ValueError(f"no argument: {data!r}")
