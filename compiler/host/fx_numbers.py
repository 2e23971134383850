"""Numbers of an FX graph, sizes above all: each is known by its size program and needs no step of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from torch.fx import Node

from attnc.runtime.host_steps import OPERATIONS, Arg, Register, Size, SizeProgram, evaluate

_PYTHON_NAMES = {"and_": "and", "or_": "or", "not_": "not", **{f"sym_{name}": name for name in OPERATIONS}}


@dataclass
class Numbers:
    """The nodes of a graph that are numbers, and the size programs that arguments refer to."""

    known: dict[Node, SizeProgram] = field(default_factory=dict)
    _values: dict[str, SizeProgram] = field(default_factory=dict)
    """By their text: 2 and 2.0 are equal, and not the same."""

    @property
    def values(self) -> tuple[SizeProgram, ...]:
        return tuple(self._values.values())

    def argument(self, node: Node) -> Arg:
        """A number as an argument of a step."""
        program = self.known[node]
        (token, *rest) = program
        if not rest and not isinstance(token, str):
            return token
        if not rest and isinstance(token, str) and token[0] == "#":
            return Register(int(token[1:]))
        self._values.setdefault(repr(program), program)
        return Size(list(self._values).index(repr(program)))

    def compute(self, node: Node, name: str) -> None:
        """Make a node of Python arithmetic known; ``name`` is ``add``, ``sym_max``, …

        Raises ValueError for one that is none.
        """
        arguments: Any = node.args[0] if name == "sym_sum" else node.args
        programs = [self._program(arg, node) for arg in arguments]
        if name == "sym_sum":
            self.known[node] = _folded(reduce(lambda left, right: (*left, *right, ".add"), programs))
            return
        name = _PYTHON_NAMES.get(name, name)
        if name not in OPERATIONS or len(programs) != OPERATIONS[name][0]:
            raise ValueError(f"making a host program: %{node.name}: sizes have no {name} of {len(programs)} numbers")
        self.known[node] = _folded((*(token for program in programs for token in program), f".{name}"))

    def _program(self, arg: Any, node: Node) -> SizeProgram:
        if isinstance(arg, Node) and arg in self.known:
            return self.known[arg]
        if isinstance(arg, bool | int | float):
            return (arg,)
        raise ValueError(f"making a host program: %{node.name}: {arg} is no number")


def _folded(program: SizeProgram) -> SizeProgram:
    """Arithmetic on plain numbers, done."""
    plain = all(not isinstance(token, str) or token[0] == "." for token in program)
    return (evaluate(program, {}),) if plain else program
