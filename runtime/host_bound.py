"""A host program bound to its constants: inputs are looked at, then the steps run as one Python function.

Operators are resolved once. What depends on sizes is worked out once for each set of input shapes and kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from attnc.runtime.host_inputs import NUMBERS, check_inputs, check_kinds
from attnc.runtime.host_names import dtype_name, dtype_of, literal, operators
from attnc.runtime.host_program import HostProgram
from attnc.runtime.host_source import SourceWriter
from attnc.runtime.host_steps import evaluate, registers_of

_KEPT = 4096
"""How many sets of input shapes are remembered."""


class Bound:
    """Call it with the inputs, in order: a tuple of the outputs comes back.

    It runs without gradients. Inputs and constants that the program writes are written in place. ValueError names an
    input that isn't what the program takes; an error of an operator has a note that says which step it was.
    """

    def __init__(self, program: HostProgram, constants: Mapping[str, Tensor]) -> None:
        check_kinds(program)
        self.program = program
        self.constants = bound_constants(program, constants)
        writer = SourceWriter(program, operators(program), self.constants, literal)
        self.source = writer.text()
        """The Python function the steps became, to read."""
        space = writer.objects
        exec(compile(self.source, "<host program>", "exec"), space)
        self._prepare, self._run = space.pop("prepare"), space.pop("run")
        self._steps_of_lines = writer.steps_of_lines
        self._looked_at = [i for i, given in enumerate(program.inputs) if given.dtype != "any"]
        self._prepared: dict[Any, tuple[Any, ...]] = {}

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        prepared = self._prepared.get(self._key(inputs))
        if prepared is None:
            prepared = self._first(inputs)
        try:
            with torch.no_grad():
                outputs: tuple[Any, ...] = self._run(prepared, *inputs)
        except Exception as error:
            self._locate(error)
            raise
        return outputs

    def _key(self, inputs: tuple[Any, ...]) -> Any:
        """Equal for inputs that check alike and give the same sizes."""
        if len(inputs) != len(self.program.inputs):
            return None
        looked_at = [inputs[i] for i in self._looked_at]
        return tuple([(x.dtype, x.shape) if isinstance(x, Tensor) else _number_key(x) for x in looked_at])

    def _first(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Check inputs of shapes not met before, and work out what depends on their sizes."""
        sizes = check_inputs(self.program, inputs)
        fixed = [None if registers_of(value) else evaluate(value, sizes) for value in self.program.values]
        if len(self._prepared) >= _KEPT:
            self._prepared.clear()
        prepared: tuple[Any, ...] = self._prepare(fixed, sizes)
        self._prepared[self._key(inputs)] = prepared
        return prepared

    def _locate(self, error: Exception) -> None:
        """Say in a note which step raised."""
        code: CodeType = self._run.__code__
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not code:
            trace = trace.tb_next
        if trace is not None and trace.tb_lineno in self._steps_of_lines:
            place = self._steps_of_lines[trace.tb_lineno]
            error.add_note(f"in step {place} of a host program: {self.program.steps[place].op}")


def _number_key(x: Any) -> Any:
    return type(x), x if type(x) in NUMBERS.values() else None


def bound_constants(program: HostProgram, constants: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors a program needs, without gradients. Raises ValueError for all that are missing or different."""
    wrong = []
    for wanted in program.constants:
        if wanted.name not in constants:
            wrong.append(f"{wanted.name} is missing")
            continue
        found = constants[wanted.name]
        if (found.dtype, tuple(found.shape)) != (dtype_of(wanted.dtype), wanted.shape):
            is_ = f"{dtype_name(found.dtype)}{list(found.shape)}"
            wrong.append(f"{wanted.name} is {is_}, not {wanted.dtype}{list(wanted.shape)}")
    if wrong:
        raise ValueError(f"binding a host program: constants are not what it was made with: {'; '.join(wrong)}")
    return {wanted.name: constants[wanted.name].detach() for wanted in program.constants}
