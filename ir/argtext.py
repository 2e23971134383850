"""The text of arguments and locations.

Arguments read like Python's: ``%x``, ``[%a, 1]`` (a list, always a tuple in memory), ``None``, ``True``, ``-1``,
``1e-05``, ``inf``, ``nan``, ``complex(1.0, -0.0)``, ``"text"``, and literals such as ``dtype<float32>``.
"""

from __future__ import annotations

from collections.abc import Mapping

from attnc.ir.diagnostics import PrintError
from attnc.ir.lexer import Cursor, Token, is_identifier, quote, show_name
from attnc.ir.values import Arg, Literal, Location, Value

_WORDS: dict[str, Arg] = {"None": None, "True": True, "False": False, "inf": float("inf"), "nan": float("nan")}
LITERAL_KINDS = ("dtype", "device", "layout", "memory_format")


def show_arg(arg: Arg) -> str:
    """The text of an argument. Raises PrintError for an object that isn't one."""
    if isinstance(arg, Value):
        return show_name("%", arg.name)
    if isinstance(arg, tuple):
        return f"[{', '.join(map(show_arg, arg))}]"
    if isinstance(arg, str):
        return quote(arg)
    if isinstance(arg, Literal):
        return _show_literal(arg)
    if isinstance(arg, complex):
        return f"complex({arg.real!r}, {arg.imag!r})"
    if arg is None or isinstance(arg, bool | int | float):
        return repr(arg)
    raise PrintError(f"argument {arg!r} ({type(arg).__name__}) has no text form")


def _show_literal(literal: Literal) -> str:
    if literal.kind not in LITERAL_KINDS or set(literal.text) & set("<>\n"):
        raise PrintError(f"literal {literal!r} has no text form; kinds are {', '.join(LITERAL_KINDS)}")
    return f"{literal.kind}<{literal.text}>"


def show_kwargs(kwargs: Mapping[str, Arg], equals: str = "=") -> list[str]:
    """One ``name=argument`` text per entry. Raises PrintError for a name that isn't an identifier."""
    for name in kwargs:
        if not is_identifier(name):
            raise PrintError(f"keyword {name!r} is not an identifier")
    return [f"{name}{equals}{show_arg(arg)}" for name, arg in kwargs.items()]


def parse_arg(cursor: Cursor, values: Mapping[str, Value]) -> Arg:
    """Read an argument whose values are looked up by name. Raises ParseError."""
    token = cursor.token
    match token.kind:
        case "value":
            cursor.index += 1
            return _value(cursor, token, values)
        case "int" | "float":
            return _number(cursor)
        case "string":
            cursor.index += 1
            return cursor.unquote(token)
        case "literal":
            cursor.index += 1
            kind, _, text = token.text.partition("<")
            return Literal(kind, text[:-1])
    if token.text in _WORDS:
        cursor.index += 1
        return _WORDS[token.text]
    if token.text == "-":
        return _number(cursor)
    if token.text == "complex":
        return _complex(cursor)
    if cursor.accept("["):
        return parse_args(cursor, values, "]")
    cursor.fail("expected an argument (a value, number, string, literal or list)")


def _value(cursor: Cursor, token: Token, values: Mapping[str, Value]) -> Value:
    name = cursor.unquote(token, 1)
    if name not in values:
        cursor.fail(f"%{name} is not defined above this line", token)
    return values[name]


def parse_args(cursor: Cursor, values: Mapping[str, Value], close: str) -> tuple[Arg, ...]:
    """Read arguments up to ``close`` and step over it. Raises ParseError."""
    args: list[Arg] = []
    while not cursor.accept(close):
        if args:
            cursor.expect(",", f"or {close!r}")
        args.append(parse_arg(cursor, values))
    return tuple(args)


def parse_call(cursor: Cursor, values: Mapping[str, Value]) -> tuple[tuple[Arg, ...], dict[str, Arg]]:
    """Read ``(arg, …, name=arg, …)``. Raises ParseError, also where a positional argument follows a keyword."""
    cursor.expect("(", "before the arguments")
    args: list[Arg] = []
    kwargs: dict[str, Arg] = {}
    while not cursor.accept(")"):
        if args or kwargs:
            cursor.expect(",", "or ')' in the arguments")
        if cursor.token.kind == "name" and cursor.peek().text == "=":
            parse_entry(cursor, values, kwargs)
        elif kwargs:
            cursor.fail("a positional argument cannot follow a keyword argument", cursor.token)
        else:
            args.append(parse_arg(cursor, values))
    return tuple(args), kwargs


def parse_entry(cursor: Cursor, values: Mapping[str, Value], entries: dict[str, Arg]) -> None:
    """Read ``name = argument`` into ``entries``. Raises ParseError, also where the name was there already."""
    name = cursor.take("name", "a name")
    if not is_identifier(name.text):
        cursor.fail(f"{name.text!r} is not a plain name", name)
    if name.text in entries:
        cursor.fail(f"{name.text} is given twice", name)
    cursor.expect("=", f"after {name.text}")
    entries[name.text] = parse_arg(cursor, values)


def _number(cursor: Cursor) -> int | float:
    negative = cursor.accept("-")
    token = cursor.token
    if token.kind not in ("int", "float") and token.text not in ("inf", "nan"):
        cursor.fail("expected a number")
    cursor.index += 1
    number = int(token.text) if token.kind == "int" else float(token.text)
    return -number if negative else number


def _complex(cursor: Cursor) -> complex:
    cursor.expect("complex")
    cursor.expect("(", "after complex")
    real = _number(cursor)
    cursor.expect(",", "between real and imaginary part")
    imaginary = _number(cursor)
    cursor.expect(")")
    return complex(real, imaginary)


def show_location(loc: Location) -> str:
    """``loc("model.py":12 "y = x + 1" in "layers.0")``, or nothing where nothing is known."""
    if loc == Location():
        return ""
    code = f" {quote(loc.code)}" if loc.code else ""
    module = f" in {quote(loc.module)}" if loc.module else ""
    return f"loc({quote(loc.file)}:{loc.line}{code}{module})"


def parse_location(cursor: Cursor) -> Location:
    """Read ``loc(…)`` where it is next, else the unknown location. Raises ParseError."""
    if not (cursor.at("loc") and cursor.peek().text == "("):
        return Location()
    cursor.index += 2
    file = cursor.unquote(cursor.take("string", "a quoted file name"))
    cursor.expect(":", "before the line number")
    line = int(cursor.take("int", "a line number").text)
    code = cursor.unquote(cursor.take("string", "")) if cursor.token.kind == "string" else ""
    module = cursor.unquote(cursor.take("string", "a quoted module path")) if cursor.accept("in") else ""
    cursor.expect(")", "after a location")
    return Location(file, line, code, module)
