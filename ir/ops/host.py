"""The ``ir`` and ``py`` dialects, and the declared effects of ``torch``: what surrounds tensor operators.

``py.*`` are Python's scalar functions on host numbers, as symbolic sizes go through them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy

from attnc.ir.opdef import Attribute, Infer, OpDef, Operand, Result, Trait
from attnc.ir.types import Dim, ScalarType, TupleType, Type, as_dim
from attnc.ir.typetext import show_type
from attnc.ir.values import Arg, Op, Value

EFFECT = frozenset({Trait.EFFECT})


def _verify_constant(op: Op) -> Iterator[str]:
    if not op.attrs["name"]:
        yield "the constant's name is empty"


CONSTANT = OpDef(
    name="ir.constant",
    summary="a payload of the graph: a parameter, a buffer, a submodule",
    attributes=(Attribute("name", str, "key in the graph's constants"),),
    results=(Result("value", "the payload"),),
    verify=_verify_constant,
)


def _scalar(arg: Arg) -> Dim | None:
    """The symbolic value of an int argument, None where unknown."""
    if isinstance(arg, Value):
        return arg.type.expr if isinstance(arg.type, ScalarType) and arg.type.kind == "int" else None
    return arg if isinstance(arg, int) and not isinstance(arg, bool) else None


def _integer(function: Callable[..., Any]) -> Infer:
    """Result rule of exact integer arithmetic: a host int, with its expression where the operands' are known."""

    def infer(args: tuple[Arg, ...], attrs: Mapping[str, Any]) -> tuple[Type, ...]:
        if any(isinstance(a, float) or (isinstance(a, Value) and a.type == ScalarType("float")) for a in args):
            return (ScalarType("float"),)
        values = [_scalar(a) for a in args]
        if None in values:
            return (ScalarType("int"),)
        return (ScalarType("int", as_dim(function(*map(sympy.sympify, values)))),)

    return infer


def _element(args: tuple[Arg, ...], attrs: Mapping[str, Any]) -> tuple[Type, ...]:
    source, position = args
    if isinstance(source, Value) and isinstance(source.type, TupleType) and isinstance(position, int):
        if -len(source.type.elements) <= position < len(source.type.elements):
            return (source.type.elements[position],)
        raise ValueError(f"index {position} of a tuple of {len(source.type.elements)}")
    raise ValueError("element of a value that isn't a tuple")


def _verify_getitem(op: Op) -> Iterator[str]:
    source = op.args[0]
    if not isinstance(source, Value) or not isinstance(source.type, TupleType):
        return
    try:
        (wanted,) = _element(op.args, {})
    except ValueError as error:
        yield str(error)
        return
    if show_type(op.result.type) != show_type(wanted):
        yield f"the result's type is not that of element {op.args[1]}"


def _verify_number(op: Op) -> Iterator[str]:
    if not isinstance(op.result.type, ScalarType):
        yield "the result must be a host scalar (int, float or bool)"


def _function(name: str, arity: int, summary: str, infer: Infer | None = None) -> OpDef:
    names = ("x", "y", "z")[:arity]
    return OpDef(
        name=f"py.{name}",
        summary=summary,
        operands=tuple(Operand(n, "scalar", "a number or a host scalar") for n in names),
        results=(Result("value", "a host scalar"),),
        verify=_verify_number,
        infer=infer,
    )


GETITEM = OpDef(
    name="py.getitem",
    summary="one element of a tuple",
    operands=(Operand("source", "any", "a tuple value"), Operand("index", "any", "an int")),
    results=(Result("value", "the element"),),
    verify=_verify_getitem,
    infer=_element,
)

SYM_SUM = OpDef(
    name="py.sym_sum",
    summary="the sum of a list",
    operands=(Operand("xs", "list", "numbers and host scalars"),),
    results=(Result("value", "a host scalar"),),
    verify=_verify_number,
)
ROUND = OpDef(
    name="py.round",
    summary="half to even",
    operands=(
        Operand("x", "scalar", "a number or a host scalar"),
        Operand("digits", "scalar", "decimals to keep, else the result is an int", optional=True),
    ),
    results=(Result("value", "a host scalar"),),
    verify=_verify_number,
)

ARITHMETIC = (
    _function("add", 2, "x + y", _integer(operator.add)),
    _function("sub", 2, "x - y", _integer(operator.sub)),
    _function("mul", 2, "x * y", _integer(operator.mul)),
    _function("neg", 1, "-x", _integer(operator.neg)),
    _function("pos", 1, "+x", _integer(operator.pos)),
    _function("floordiv", 2, "x // y", _integer(lambda x, y: sympy.floor(x / y))),
    _function("mod", 2, "x % y, sign of y", _integer(sympy.Mod)),
    _function("truediv", 2, "x / y"),
    _function("pow", 2, "x ** y"),
    _function("abs", 1, "|x|"),
    _function("lshift", 2, "x << y"),
    _function("rshift", 2, "x >> y"),
)
SYMBOLIC = (
    _function("sym_max", 2, "the larger", _integer(sympy.Max)),
    _function("sym_min", 2, "the smaller", _integer(sympy.Min)),
    _function("sym_int", 1, "toward zero to an int"),
    _function("sym_float", 1, "to a float"),
    _function("sym_not", 1, "not x"),
    _function("sym_ite", 3, "y if x else z"),
    _function("sym_sqrt", 1, "the square root"),
    SYM_SUM,
    ROUND,
    _function("max", 2, "the larger", _integer(sympy.Max)),
    _function("min", 2, "the smaller", _integer(sympy.Min)),
    _function("floor", 1, "down to an int"),
    _function("ceil", 1, "up to an int"),
    _function("trunc", 1, "toward zero to an int"),
)
LOGIC = tuple(
    _function(name, arity, summary)
    for name, arity, summary in (
        ("eq", 2, "x == y"),
        ("ne", 2, "x != y"),
        ("lt", 2, "x < y"),
        ("le", 2, "x <= y"),
        ("gt", 2, "x > y"),
        ("ge", 2, "x >= y"),
        ("and_", 2, "x & y"),
        ("or_", 2, "x | y"),
        ("xor", 2, "x ^ y"),
        ("not_", 1, "not x"),
    )
)

EFFECTS = (
    OpDef(
        name="torch.set_grad_enabled",
        summary="turns gradient recording on or off from here",
        operands=(Operand("enabled", "scalar", "a bool"),),
        results=(Result("none", "nothing", optional=True),),
        traits=EFFECT,
    ),
    OpDef(
        name="torch.enter_autocast",
        summary="enters an autocast region",
        operands=tuple(
            Operand(name, "any", doc, optional)
            for name, doc, optional in (
                ("device", "device type", False),
                ("dtype", "dtype literal", True),
                ("enabled", "a bool", True),
                ("cache", "a bool", True),
            )
        ),
        results=(Result("handle", "opaque"),),
        traits=EFFECT,
    ),
    OpDef(
        name="torch.exit_autocast",
        summary="leaves the autocast region of a handle",
        operands=(Operand("handle", "any", "of torch.enter_autocast"),),
        results=(Result("none", "nothing", optional=True),),
        traits=EFFECT,
    ),
)

OPS: tuple[OpDef, ...] = (CONSTANT, GETITEM, *ARITHMETIC, *SYMBOLIC, *LOGIC, *EFFECTS)
