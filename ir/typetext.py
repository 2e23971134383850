"""The text of types: ``f32[B, S] strides(1, B) on "cuda:0" atoms([B], [S])``, ``int<S>``, ``(f32[2], i64[2])``."""

from __future__ import annotations

from functools import lru_cache

from attnc.ir.diagnostics import PrintError
from attnc.ir.dims import parse_dim, show_dim
from attnc.ir.lexer import Cursor, is_identifier, quote
from attnc.ir.types import Atom, Dim, DType, NoneType, OpaqueType, ScalarType, TensorType, TupleType, Type

_DTYPES = {dtype.value: dtype for dtype in DType}
_SCALARS = ("int", "float", "bool")
_EXPECTED = 'expected a type (f32[B, S], int, float, bool, none, opaque("name") or (type, type))'


@lru_cache(maxsize=16384)
def show_type(type: Type) -> str:
    """The text of a type. Raises PrintError for a dimension with no text form.

    Strides are shown where they aren't contiguous, the device where it isn't ``cpu``.
    """
    match type:
        case TensorType():
            return _show_tensor(type)
        case ScalarType():
            return type.kind if type.expr is None else f"{type.kind}<{show_dim(type.expr)}>"
        case TupleType():
            inner = ", ".join(show_type(e) for e in type.elements)
            return f"({inner},)" if len(type.elements) == 1 else f"({inner})"
        case NoneType():
            return "none"
        case OpaqueType():
            return f"opaque({quote(type.name)})"
    raise PrintError(f"{type!r} is not a type")


def _show_tensor(type: TensorType) -> str:
    if not isinstance(type.dtype, DType):
        raise PrintError(f"{type.dtype!r} is not a dtype")
    text = f"{type.dtype.value}[{_show_dims(type.shape)}]"
    if type.strides is not None and not type.is_contiguous:
        text += f" strides({_show_dims(type.strides)})"
    if type.device != "cpu":
        text += f" on {quote(type.device)}"
    if type.atoms is not None:
        text += " atoms(" + ", ".join(f"[{', '.join(map(str, a))}]" for a in type.atoms) + ")"
    return text


def _show_dims(dims: tuple[Dim, ...]) -> str:
    return ", ".join(show_dim(d) for d in dims)


def parse_type(cursor: Cursor) -> Type:
    """Read a type. Raises ParseError."""
    token = cursor.token
    if token.text in _DTYPES and token.kind == "name":
        return _tensor(cursor)
    if token.text in _SCALARS and token.kind == "name":
        return _scalar(cursor)
    if cursor.accept("none"):
        return NoneType()
    if cursor.accept("opaque"):
        cursor.expect("(")
        name = cursor.unquote(cursor.take("string", "the quoted name of an opaque type"))
        cursor.expect(")")
        return OpaqueType(name)
    if cursor.accept("("):
        return _tuple(cursor)
    cursor.fail(_EXPECTED)


def _tensor(cursor: Cursor) -> TensorType:
    dtype = _DTYPES[cursor.take("name", "a dtype").text]
    cursor.expect("[", "after a tensor's dtype")
    shape = _dims(cursor, "]")
    strides = _dims(cursor, ")", "strides") if _opens(cursor, "strides") else None
    device = "cpu"
    if cursor.accept("on"):
        device = cursor.unquote(cursor.take("string", "a quoted device"))
    atoms = _atoms(cursor) if _opens(cursor, "atoms") else None
    return TensorType(dtype, shape, device, strides, atoms)


def _opens(cursor: Cursor, word: str) -> bool:
    """Step over ``word (``."""
    if not (cursor.at(word) and cursor.peek().text == "("):
        return False
    cursor.index += 2
    return True


def _dims(cursor: Cursor, close: str, role: str = "a shape") -> tuple[Dim, ...]:
    dims: list[Dim] = []
    while not cursor.accept(close):
        if dims:
            cursor.expect(",", f"or {close!r} in {role}")
        dims.append(parse_dim(cursor))
    return tuple(dims)


def _atoms(cursor: Cursor) -> tuple[tuple[Atom, ...], ...]:
    dims: list[tuple[Atom, ...]] = []
    while not cursor.accept(")"):
        if dims:
            cursor.expect(",", "or ')' in atoms")
        cursor.expect("[", "before the atoms of a dimension")
        atoms: list[Atom] = []
        while not cursor.accept("]"):
            if atoms:
                cursor.expect(",", "or ']' in atoms")
            atoms.append(_atom(cursor))
        dims.append(tuple(atoms))
    return tuple(dims)


def _atom(cursor: Cursor) -> Atom:
    if cursor.token.kind == "int":
        return int(cursor.take("int", "a number").text)
    token = cursor.take("name", "an atom (an axis name or a number)")
    if not is_identifier(token.text):
        cursor.fail(f"atom {token.text!r} is not a plain name", token)
    return token.text


def _scalar(cursor: Cursor) -> ScalarType:
    kind = cursor.take("name", "a scalar type").text
    if not cursor.accept("<"):
        return ScalarType(kind)
    expr = parse_dim(cursor)
    cursor.expect(">")
    return ScalarType(kind, expr)


def _tuple(cursor: Cursor) -> TupleType:
    elements: list[Type] = []
    while not cursor.accept(")"):
        if elements:
            cursor.expect(",", "or ')' in a tuple type")
            if cursor.accept(")"):
                break
        elements.append(parse_type(cursor))
    return TupleType(tuple(elements))
