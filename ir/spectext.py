"""The text of an attention's attribute: one ``name = formula`` a line, in the braces after the op.

``q = [b, h, q, d]``: axes of an operand or (``out``) the result · ``qk = f32``: dtype of the product, absent where no
formula reads it · ``score = qk * 0.25``: as the source wrote it; ``visible``, ``weight``, ``sink`` likewise ·
``mask = k <= q``: an index formula · ``fill = finite(-1e9)`` or ``minus_inf`` · ``softmax = plain f32``: form and dtype
of the statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import sympy

from attnc.ir import index, score
from attnc.ir.attention import AttentionSpec, Fill
from attnc.ir.diagnostics import PrintError
from attnc.ir.lexer import Cursor, Token
from attnc.ir.score import Node
from attnc.ir.types import DType, TensorType
from attnc.ir.values import Arg, Value

_REQUIRED = ("q", "k", "v", "out", "score", "visible", "mask", "fill", "softmax", "out_dtype")
_KEYS = (*_REQUIRED, "sizes", "qk", "weight", "sink", "dead_rows", "lse")
_FORMULAS = ("score", "visible", "weight", "sink")
_DTYPES = {dtype.value: dtype for dtype in DType}


def show_spec(spec: AttentionSpec) -> list[str]:
    """The lines of an attention's attribute. Raises PrintError for a formula with no text form."""
    formulas = {name: node for name in _FORMULAS if (node := getattr(spec, name)) is not None}
    product = {node.dtype.value for root in formulas.values() for node in score.walk(root) if node.op == "qk"}
    if len(product) > 1:
        raise PrintError(f"qk has several dtypes in one attention: {', '.join(sorted(product))}")
    try:
        entries = {
            **{name: _names(getattr(spec, f"{name}_axes")) for name in ("q", "k", "v", "out")},
            "sizes": _names(spec.sizes) if spec.sizes else "",
            "qk": "".join(product),
            **{name: score.show(node) for name, node in formulas.items()},
            "mask": index.show(spec.mask),
            "fill": "minus_inf" if spec.fill.value is None else f"finite({float(spec.fill.value)!r})",
            "softmax": f"{spec.softmax} {spec.softmax_dtype.value}",
            "out_dtype": spec.out_dtype.value,
            "dead_rows": "" if spec.dead_rows == "source" else spec.dead_rows,
            "lse": "True" if spec.returns_lse else "",
        }
    except ValueError as error:
        raise PrintError(f"attention formula has no text form: {error}") from error
    axes = ", ".join(f"{name} = {entries.pop(name)}" for name in ("q", "k", "v", "out"))
    return [axes, *(f"{name} = {text}" for name, text in entries.items() if text)]


def _names(names: tuple[str, ...]) -> str:
    return f"[{', '.join(names)}]"


def parse_spec(cursor: Cursor, args: tuple[Arg, ...]) -> AttentionSpec:
    """Read the lines up to ``}`` and step over it; side operands in ``args`` give the loads' dtypes.

    Raises ParseError.
    """
    opening = cursor.token
    cursor.expect("{", "before the attributes of an attention")
    entries: dict[str, tuple[Token, str]] = {}
    while not cursor.accept("}"):
        name = cursor.take("name", "an attribute of the attention")
        if name.text not in _KEYS:
            cursor.fail(f"unknown attribute {name.text!r} of an attention; known: {', '.join(_KEYS)}", name)
        if name.text in entries:
            cursor.fail(f"{name.text} is given twice", name)
        cursor.expect("=", f"after {name.text}")
        entries[name.text] = (cursor.token, _value_text(cursor, name.text))
    missing = [name for name in _REQUIRED if name not in entries]
    if missing:
        cursor.fail(f"the attention lacks {', '.join(missing)}", opening)
    return _Reader(cursor, entries, args).spec()


def _value_text(cursor: Cursor, name: str) -> str:
    """A list of names up to its bracket (a comma may follow), anything else up to the end of the line."""
    if not cursor.accept("["):
        return cursor.rest_of_line(f"the value of {name}")
    names: list[str] = []
    while not cursor.accept("]"):
        if names:
            cursor.expect(",", f"or ']' in the names of {name}")
        names.append(cursor.take("name", f"a name in {name}").text)
    cursor.accept(",")
    return _names(tuple(names))


class _Reader:
    """Turns the lines of one attention into its attribute."""

    def __init__(self, cursor: Cursor, entries: Mapping[str, tuple[Token, str]], args: tuple[Arg, ...]) -> None:
        self.cursor, self.entries = cursor, entries
        self.axes = {name: self.names(name) for name in ("q", "k", "v", "out")}
        self.sizes = self.names("sizes") if "sizes" in entries else ()
        self.positions = {axis for names in self.axes.values() for axis in names}
        self.dtypes = _side_dtypes(args)
        if "qk" in entries:
            self.dtypes["qk"] = self.dtype("qk", entries["qk"][1])

    def spec(self) -> AttentionSpec:
        form, _, dtype = self.entries["softmax"][1].partition(" ")
        return AttentionSpec(
            q_axes=self.axes["q"],
            k_axes=self.axes["k"],
            v_axes=self.axes["v"],
            out_axes=self.axes["out"],
            score=self.formula("score"),
            visible=self.formula("visible"),
            mask=self.mask(),
            fill=self.fill(),
            out_dtype=self.dtype("out_dtype", self.entries["out_dtype"][1]),
            softmax_dtype=self.dtype("softmax", dtype),
            weight=self.formula("weight") if "weight" in self.entries else None,
            softmax=form,
            sink=self.formula("sink") if "sink" in self.entries else None,
            dead_rows=self.entries["dead_rows"][1] if "dead_rows" in self.entries else "source",
            sizes=self.sizes,
            returns_lse=self.lse(),
        )

    def fail(self, name: str, message: str) -> NoReturn:
        self.cursor.fail(message, self.entries[name][0])

    def names(self, name: str) -> tuple[str, ...]:
        text = self.entries[name][1]
        if not (text.startswith("[") and text.endswith("]")):
            self.fail(name, f"{name} must be a list of names such as [b, h, q, d]")
        return tuple(part.strip() for part in text[1:-1].split(",")) if text[1:-1].strip() else ()

    def dtype(self, name: str, text: str) -> DType:
        if text.strip() not in _DTYPES:
            self.fail(name, f"{text.strip()!r} is not a dtype in {name}")
        return _DTYPES[text.strip()]

    def formula(self, name: str) -> Node:
        try:
            return score.parse(self.entries[name][1], self.dtypes, self.positions, self.sizes)
        except ValueError as error:
            self.fail(name, f"the {name} formula doesn't read: {error}")

    def mask(self) -> sympy.Basic:
        try:
            return index.parse(self.entries["mask"][1], self.positions, self.sizes)
        except ValueError as error:
            self.fail("mask", f"the mask formula doesn't read: {error}")

    def fill(self) -> Fill:
        text = self.entries["fill"][1]
        if text == "minus_inf":
            return Fill()
        try:
            if text.startswith("finite(") and text.endswith(")"):
                return Fill(float(text[len("finite(") : -1]))
        except ValueError:
            pass
        self.fail("fill", "fill must be minus_inf or finite(number)")

    def lse(self) -> bool:
        if "lse" not in self.entries:
            return False
        if self.entries["lse"][1] not in ("True", "False"):
            self.fail("lse", "lse must be True or False")
        return self.entries["lse"][1] == "True"


def _side_dtypes(args: tuple[Arg, ...]) -> dict[str, DType]:
    sides = args[3] if len(args) > 3 else ()
    sides = sides if isinstance(sides, tuple) else ()
    tensors = {f"t{i}": s.type for i, s in enumerate(sides) if isinstance(s, Value)}
    return {name: type.dtype for name, type in tensors.items() if isinstance(type, TensorType)}
