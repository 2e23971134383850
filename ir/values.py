"""SSA values, ops and the argument trees that connect them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnc.ir.types import Type

if TYPE_CHECKING:
    from attnc.ir.graph import Graph


@dataclass(frozen=True)
class Literal:
    """A non-numeric constant argument: kind ``dtype``, ``device``, ``layout`` or ``memory_format``, and its name."""

    kind: str
    text: str


@dataclass(frozen=True)
class Location:
    """Where an op comes from: the user's file, line and source text, and the module path (``layers.0.attn``).

    Line 0 is that of a file without lines, such as an ONNX model: ``code`` then says which node.
    """

    file: str = ""
    line: int = 0
    code: str = ""
    module: str = ""

    def __str__(self) -> str:
        if not self.file:
            return "<unknown>"
        return f"{self.file}:{self.line}" if self.line else f"{self.file}: {self.code}"


@dataclass(eq=False)
class Value:
    """One SSA value. Identity is equality; ``uses`` lists each using op once per occurrence."""

    name: str
    type: Type
    op: Op | None = field(default=None, repr=False)
    """The producer; None for a graph input."""
    uses: list[Op] = field(default_factory=list, repr=False)

    @property
    def users(self) -> list[Op]:
        """The distinct using ops, in first-use order."""
        return list(dict.fromkeys(self.uses))


Arg = Value | Literal | None | bool | int | float | complex | str | tuple["Arg", ...]
"""An argument: a value, a constant, or a nested list (always a tuple here) of arguments."""


def walk_values(arg: Arg) -> Iterator[Value]:
    """The values inside an argument tree, left to right, repeats included."""
    if isinstance(arg, Value):
        yield arg
    elif isinstance(arg, tuple):
        for item in arg:
            yield from walk_values(item)


def map_values(arg: Arg, function: Callable[[Value], Arg]) -> Arg:
    """The argument tree with each value replaced by ``function(value)``."""
    if isinstance(arg, Value):
        return function(arg)
    if isinstance(arg, tuple):
        return tuple(map_values(item, function) for item in arg)
    return arg


@dataclass(eq=False)
class Op:
    """One operation.

    ``args`` and ``kwargs`` hold operands and constants as the source wrote them (defaults absent), so that a host
    op can be issued again exactly. ``attrs`` holds typed attributes of ``attn.*`` ops. ``meta`` belongs to the host
    frontend: it is carried through rewrites and never printed.
    """

    name: str
    args: tuple[Arg, ...]
    kwargs: dict[str, Arg]
    results: tuple[Value, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    regions: dict[str, Graph] = field(default_factory=dict)
    loc: Location = Location()
    meta: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def dialect(self) -> str:
        return self.name.split(".", 1)[0]

    @property
    def operands(self) -> list[Value]:
        """Every value read, args before kwargs, repeats included."""
        return [*walk_values(self.args), *(v for a in self.kwargs.values() for v in walk_values(a))]

    @property
    def result(self) -> Value:
        """The only result. Raises ValueError where there are none or several."""
        if len(self.results) != 1:
            raise ValueError(f"{self.name} has {len(self.results)} results, expected one")
        return self.results[0]

    def arg(self, position: int, keyword: str, default: Arg = None) -> Arg:
        """The argument given by position or by keyword, else ``default``."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(keyword, default)

    def set_args(self, args: tuple[Arg, ...], kwargs: Mapping[str, Arg] | None = None) -> None:
        """Replace the arguments and keep the use lists right."""
        for value in self.operands:
            value.uses.remove(self)
        self.args = args
        if kwargs is not None:
            self.kwargs = dict(kwargs)
        for value in self.operands:
            value.uses.append(self)
