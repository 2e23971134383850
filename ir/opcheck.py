"""Whether an op fits its declaration: arguments for every op, signature and own rules for declared ones."""

from __future__ import annotations

from collections.abc import Iterator

from attnc.ir.argtext import LITERAL_KINDS
from attnc.ir.lexer import is_identifier, is_op_name
from attnc.ir.opdef import OpDef, Operand
from attnc.ir.ops import REGISTRY
from attnc.ir.types import ScalarType, TensorType
from attnc.ir.values import Arg, Literal, Op, Value

_CONSTANTS = (bool, int, float, complex, str)


def op_problems(op: Op) -> Iterator[tuple[str, str, str]]:
    """What is wrong with an op apart from its place in the graph: code, message and hint of each problem."""
    structure = list(_structure(op))
    yield from structure
    definition = REGISTRY.get(op.name)
    if definition is None:
        if REGISTRY.is_closed(op.dialect):
            known = ", ".join(name for name in REGISTRY.ops if name.startswith(f"{op.dialect}."))
            yield "ir.unknown-op", f"{op.name} is not an op of the closed dialect {op.dialect}", f"one of {known}"
        return
    signature = list(_signature(op, definition))
    yield from signature
    if definition.verify is not None and not structure and not signature:
        yield from (("ir.op", message, "") for message in definition.verify(op))


def _structure(op: Op) -> Iterator[tuple[str, str, str]]:
    if not is_op_name(op.name):
        yield "ir.op-name", f"{op.name!r} is not an op name", "write dialect.name, such as aten.relu.default"
    for name in (*op.kwargs, *op.attrs, *op.regions):
        if not is_identifier(name):
            yield "ir.argument", f"{name!r} cannot name a keyword, attribute or region", "use an identifier"
    for arg in (*op.args, *op.kwargs.values()):
        yield from (("ir.argument", message, "convert it where the op is made") for message in _argument(arg))


def _argument(arg: Arg) -> Iterator[str]:
    if isinstance(arg, tuple):
        for item in arg:
            yield from _argument(item)
    elif isinstance(arg, Literal):
        if arg.kind not in LITERAL_KINDS:
            yield f"literal kind {arg.kind!r} is none of {', '.join(LITERAL_KINDS)}"
    elif arg is not None and not isinstance(arg, Value) and type(arg) not in _CONSTANTS:
        yield f"argument {arg!r} is a {type(arg).__name__}, which is no kind of argument (a list is a tuple here)"


def _signature(op: Op, definition: OpDef) -> Iterator[tuple[str, str, str]]:
    hint = f"{op.name}: {definition.summary}; see docs/ir.md"
    yield from (("ir.operands", message, hint) for message in _operands(op, definition))
    yield from (("ir.attributes", message, hint) for message in _attributes(op, definition))
    least = sum(not r.optional for r in definition.results)
    if not least <= len(op.results) <= len(definition.results):
        yield "ir.results", f"{len(op.results)} results, expected {_range(least, len(definition.results))}", hint
    if op.regions:
        yield "ir.regions", f"{op.name} takes no regions", hint


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def _operands(op: Op, definition: OpDef) -> Iterator[str]:
    if op.kwargs:
        yield f"{op.name} takes no keyword arguments, got {', '.join(op.kwargs)}"
    least = sum(not o.optional for o in definition.operands)
    if not least <= len(op.args) <= len(definition.operands):
        yield f"{len(op.args)} arguments, expected {_range(least, len(definition.operands))}"
        return
    for operand, arg in zip(definition.operands, op.args, strict=False):
        if not _is_kind(operand, arg):
            yield f"argument {operand.name} must be {_KINDS[operand.kind]}: {operand.doc}"


_KINDS = {
    "tensor": "a tensor",
    "tensors": "a list of tensors",
    "list": "a list",
    "scalar": "a number or a host scalar",
}


def _is_kind(operand: Operand, arg: Arg) -> bool:
    match operand.kind:
        case "tensor":
            return isinstance(arg, Value) and isinstance(arg.type, TensorType)
        case "tensors":
            return isinstance(arg, tuple) and all(_is_kind(Operand("", "tensor", ""), item) for item in arg)
        case "list":
            return isinstance(arg, tuple)
        case "scalar":
            return isinstance(arg.type, ScalarType) if isinstance(arg, Value) else isinstance(arg, bool | int | float)
    return True


def _attributes(op: Op, definition: OpDef) -> Iterator[str]:
    for name in op.attrs:
        if definition.attribute(name) is None:
            yield f"{op.name} has no attribute {name}"
    for attribute in definition.attributes:
        if attribute.name not in op.attrs:
            if not attribute.optional:
                yield f"attribute {attribute.name} is missing"
        elif type(op.attrs[attribute.name]) is not attribute.type:
            got = type(op.attrs[attribute.name]).__name__
            yield f"attribute {attribute.name} must be {attribute.type.__name__}, is {got}"
