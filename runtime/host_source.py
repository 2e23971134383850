"""A host program as Python source: one statement for each step, nothing left to decide while it runs.

Names in the text are made here (``r3`` a register, ``f3`` the operator of step 3, ``c0`` a constant or another object,
``n0`` what depends on sizes), so that no text of a program reaches the compiler but in comments of one checked line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attnc.runtime.host_check import read
from attnc.runtime.host_program import HostProgram, Step
from attnc.runtime.host_steps import OPERATIONS, Arg, Constant, Literal, Register, Size, leaves


class SourceWriter:
    """Writes two functions and collects the objects they refer to.

    ``prepare(values, sizes)`` gives everything that depends on sizes alone, whole lists included, as one tuple;
    ``run(prepared, *inputs)`` runs the steps and gives the tuple of outputs.
    """

    def __init__(
        self,
        program: HostProgram,
        operators: Mapping[str, Callable[..., Any]],
        constants: Mapping[str, Any],
        literal: Callable[[Literal], Any],
    ) -> None:
        self.program = program
        self.operators = operators
        self.constants = constants
        self.literal = literal
        self.objects: dict[str, Any] = {}
        """Global name → object."""
        self.steps_of_lines: dict[int, int] = {}
        """Line of the text → place of its step."""
        self._known: dict[str, str] = {}
        self._prepared: dict[str, str] = {}

    def text(self) -> str:
        """The module."""
        body: list[str] = []
        for place, step in enumerate(self.program.steps):
            for line in self._step(place, step):
                body.append(line)
                self.steps_of_lines[len(body)] = place
        body.append(f"return {self._tuple([self._live(arg) for arg in self.program.outputs])}")
        given = ", ".join(["prepared", *(f"r{i}" for i in range(len(self.program.inputs)))])
        head = ["def prepare(values, sizes):", f"    return {self._tuple(list(self._prepared))}", f"def run({given}):"]
        if self._prepared:
            head.append(f"    {self._tuple(list(self._prepared.values()))} = prepared")
        self.steps_of_lines = {line + len(head): place for line, place in self.steps_of_lines.items()}
        return "\n".join([*head, *(f"    {line}" for line in body)]) + "\n"

    def _step(self, place: int, step: Step) -> list[str]:
        self.objects[f"f{place}"] = self.operators[step.op]
        args = [self._live(arg) for arg in step.args]
        args += [f"{key}={self._live(arg)}" for key, arg in step.kwargs]
        call = f"f{place}({', '.join(args)})  # {step.op}"
        lines = [call] if step.results is None else [f"r{step.results} = {call}"]
        if isinstance(step.results, tuple):
            kept = [f"r{register} = t[{i}]" for i, register in enumerate(step.results) if register is not None]
            lines = [f"t = {call}", *kept, "del t"]
        if step.frees:
            lines.append("del " + ", ".join(f"r{register}" for register in step.frees))
        return lines

    def _live(self, arg: Arg) -> str:
        """An argument in ``run``."""
        parts = list(leaves(arg))
        if any(read(leaf, self.program) for leaf in parts):
            if isinstance(arg, tuple):
                return f"[{', '.join(self._live(item) for item in arg)}]"
            return f"r{arg.index}" if isinstance(arg, Register) else self._computed(arg)
        return self._prepare(self._sized(arg)) if any(isinstance(leaf, Size) for leaf in parts) else self._fixed(arg)

    def _sized(self, arg: Arg) -> str:
        """An argument that depends on sizes, in ``prepare``."""
        if isinstance(arg, tuple):
            return f"[{', '.join(self._sized(item) for item in arg)}]"
        return f"values[{arg.index}]" if isinstance(arg, Size) else self._fixed(arg)

    def _computed(self, arg: Arg) -> str:
        """A number that depends on what steps left in registers, in ``run``."""
        assert isinstance(arg, Size)
        stack: list[str] = []
        for token in self.program.values[arg.index]:
            stack.append(self._token(token, stack))
        return stack[0]

    def _token(self, token: int | float | str, stack: list[str]) -> str:
        if not isinstance(token, str):
            return self._fixed(token)
        if token[0] == "#":
            return f"r{int(token[1:])}"
        if token[0] != ".":
            return self._prepare(f"sizes[{self._fixed(token)}]")
        count, function = OPERATIONS[token[1:]]
        operands = stack[-count:]
        del stack[-count:]
        return f"{self._object(token, function)}({', '.join(operands)})"

    def _prepare(self, text: str) -> str:
        return self._prepared.setdefault(text, f"n{len(self._prepared)}")

    def _fixed(self, arg: Arg) -> str:
        """An argument that is always the same: a number as it is, anything else as one object."""
        if arg is None or isinstance(arg, bool | int):
            return repr(arg)
        return self._object(repr(arg), self._made(arg))

    def _made(self, arg: Arg) -> Any:
        if isinstance(arg, tuple):
            return [self._made(item) for item in arg]
        if isinstance(arg, Constant):
            return self.constants[arg.name]
        return self.literal(arg) if isinstance(arg, Literal) else arg

    def _object(self, key: str, value: Any) -> str:
        name = self._known.setdefault(key, f"c{len(self._known)}")
        self.objects[name] = value
        return name

    @staticmethod
    def _tuple(items: list[str]) -> str:
        return f"({', '.join(items)}{',' * (len(items) == 1)})"
