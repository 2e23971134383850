"""Tokens of the text form, and a cursor over them.

One regular expression reads the whole text first: a token is its kind, its text and its offset, and lines and columns
are worked out only when an error needs them. Newlines mean nothing except inside an attention block, whose formulas
end with their line (:meth:`Cursor.rest_of_line`).
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple, NoReturn

from attnc.ir.diagnostics import ParseError

_TOKEN = re.compile(
    r"""
      (?P<skip>    \s+ | \#[^\n]* )
    | (?P<value>   %(?: [\w.]+ | "(?:[^"\\\n]|\\.)*" ) )
    | (?P<symbol>  @(?: [\w.]+ | "(?:[^"\\\n]|\\.)*" ) )
    | (?P<string>  "(?:[^"\\\n]|\\.)*" )
    | (?P<float>   \d+\.\d*(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ )
    | (?P<int>     \d+ )
    | (?P<literal> (?:dtype|device|layout|memory_format)<[^<>\n]*> )
    | (?P<name>    [^\W\d]\w*(?:\.\w+)* )
    | (?P<punct>   \*\* | // | <= | >= | == | != | [()\[\]{}<>,:=+\-*/%&|~^] )
    """,
    re.VERBOSE,
)
MAX_DIGITS = 4000
"""Python reads no longer integers from text (``sys.get_int_max_str_digits``)."""

_BARE = re.compile(r"[\w.]+\Z")
_IDENTIFIER = re.compile(r"[^\W\d]\w*\Z")
_OP_NAME = re.compile(r"[^\W\d]\w*(?:\.\w+)+\Z")


class Token(NamedTuple):
    """``kind`` is a group of the token expression, or ``end`` after the last one."""

    kind: str
    text: str
    offset: int


def is_identifier(text: str) -> bool:
    """Whether ``text`` can stand for a size, axis, attribute or keyword argument."""
    return _IDENTIFIER.match(text) is not None


def is_op_name(text: str) -> bool:
    """Whether ``text`` is a dialect, a dot and a name, such as ``aten.add.Tensor``."""
    return _OP_NAME.match(text) is not None


def quote(text: str) -> str:
    """A string token. Printable text stays readable; anything else is escaped."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def show_name(sigil: str, name: str) -> str:
    """``%name`` or ``@name``, quoted where the name has other characters than letters, digits, ``_`` and dots."""
    return sigil + (name if _BARE.match(name) else quote(name))


def tokenize(text: str, source: str = "<text>") -> list[Token]:
    """The tokens of ``text``, ending in one of kind ``end``. Raises ParseError at a character no token starts with."""
    tokens, position, match = [], 0, _TOKEN.match
    while position < len(text):
        found = match(text, position)
        if found is None:
            what = "unterminated string" if '"' in text[position : position + 2] else f"character {text[position]!r}"
            raise parse_error(text, position, f"{what} is not part of the IR's text form", source)
        kind = found.lastgroup or ""
        if kind == "int" and found.end() - position > MAX_DIGITS:
            raise parse_error(text, position, f"a number of more than {MAX_DIGITS} digits", source)
        if kind != "skip":
            tokens.append(Token(kind, found.group(), position))
        position = found.end()
    tokens.append(Token("end", "", len(text)))
    return tokens


def parse_error(text: str, offset: int, message: str, source: str) -> ParseError:
    """The error at ``offset`` of ``text``, with its line shown."""
    start = text.rfind("\n", 0, offset) + 1
    stop = text.find("\n", offset)
    line_text = text[start : stop if stop >= 0 else len(text)].replace("\t", " ")
    line = text.count("\n", 0, offset) + 1
    return ParseError(message, source=source, line=line, column=offset - start + 1, line_text=line_text)


class Cursor:
    """A position in a token list."""

    def __init__(self, text: str, source: str = "<text>") -> None:
        self.text, self.source = text, source
        self.tokens = tokenize(text, source)
        self.index = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    def peek(self, ahead: int = 1) -> Token:
        """The token ``ahead`` of the current one (the end token where there is none)."""
        return self.tokens[min(self.index + ahead, len(self.tokens) - 1)]

    def at(self, text: str) -> bool:
        """Whether the current token is this name or punctuation (a string never is)."""
        return self.tokens[self.index].text == text

    def accept(self, text: str) -> bool:
        """Step over ``text`` if it is next."""
        if self.tokens[self.index].text != text:
            return False
        self.index += 1
        return True

    def expect(self, text: str, role: str = "") -> Token:
        """Step over ``text``. Raises ParseError where something else is next."""
        token = self.tokens[self.index]
        if token.text != text:
            self.fail(f"expected {text!r}{f' {role}' if role else ''}")
        self.index += 1
        return token

    def take(self, kind: str, role: str) -> Token:
        """Step over a token of ``kind``. Raises ParseError, naming ``role``, where something else is next."""
        token = self.tokens[self.index]
        if token.kind != kind:
            self.fail(f"expected {role}")
        self.index += 1
        return token

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise ParseError at ``token``, or at the current one, naming what was found there."""
        where = token or self.token
        found = f"; found {'the end of the text' if where.kind == 'end' else where.text}"
        raise parse_error(self.text, where.offset, message + ("" if token else found), self.source)

    def rest_of_line(self, role: str) -> str:
        """Step over the tokens left on this line and give their text. Raises ParseError where there are none."""
        first = self.token
        stop = self.text.find("\n", first.offset)
        stop = len(self.text) if stop < 0 else stop
        newline = self.text.rfind("\n", 0, first.offset)
        if first.kind == "end" or newline > self.tokens[self.index - 1].offset:
            self.fail(f"expected {role} on this line")
        while self.token.kind != "end" and self.token.offset < stop:
            self.index += 1
        last = self.tokens[self.index - 1]
        return self.text[first.offset : last.offset + len(last.text)]

    def unquote(self, token: Token, skip: int = 0) -> str:
        """The string a token quotes, after ``skip`` characters of sigil; bare text as it is. Raises ParseError."""
        body = token.text[skip:]
        if not body.startswith('"'):
            return body
        try:
            return str(json.loads(body))
        except ValueError:
            self.fail("bad escape in string", token)
