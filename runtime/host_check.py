"""What makes a list of steps a program: names are known, registers are written once and read while they hold a value.

A program that passes can be turned into source text: every name that text is made from has been looked at.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from attnc.runtime.host_steps import Constant, Register, Size, check_size, leaves, registers_of

if TYPE_CHECKING:
    from attnc.runtime.host_program import HostProgram, Step

_OPERATOR = re.compile(r"[A-Za-z_]\w*\.\w+\.\w+", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def check(program: HostProgram) -> None:
    """Raise ValueError for the first thing that is wrong, and where it is."""
    _Check(program).run()


class _Check:
    def __init__(self, program: HostProgram) -> None:
        self.program = program
        self.names = {size.name for size in program.sizes}
        self.constants = {constant.name for constant in program.constants}
        self.live = set(range(len(program.inputs)))
        self.written = set(self.live)

    def run(self) -> None:
        self._declarations()
        for place, step in enumerate(self.program.steps):
            try:
                self._step(step)
            except ValueError as error:
                raise ValueError(f"malformed host program: step {place}, {step.op}: {error}") from error
        try:
            self._reads(self.program.outputs)
        except ValueError as error:
            raise ValueError(f"malformed host program: the outputs: {error}") from error

    def _declarations(self) -> None:
        program = self.program
        for kind, items in (("size", program.sizes), ("input", program.inputs), ("constant", program.constants)):
            _different(kind, [item.name for item in items])
        for size in program.sizes:
            _require(bool(_NAME.fullmatch(size.name)), f"a size is named {size.name!r}")
            where = f"size {size.name} is read from dimension {size.dim} of input {size.input}, which there is not"
            _require(_index(size.input, len(program.inputs)), where)
            _require(_index(size.dim, len(program.inputs[size.input].shape)), where)
            _require(all(b is None or type(b) is int for b in (size.lo, size.hi)), f"size {size.name} has no bounds")
        for name, dtype in [(i.name, i.dtype) for i in program.inputs] + [(c.name, c.dtype) for c in program.constants]:
            _require(isinstance(dtype, str), f"{name} has no dtype")
        for given in program.inputs:
            _require(
                not given.shape or given.dtype not in ("any", "float", "bool"), f"input {given.name} has dimensions"
            )
            for dim in given.shape:
                _checked(dim, self.names, f"input {given.name}")
                _require(not registers_of(dim), f"input {given.name}: its shape reads a register")
        for place, value in enumerate(program.values):
            _checked(value, self.names, f"value {place}")
        for constant in program.constants:
            _require(all(_integer(extent) for extent in constant.shape), f"constant {constant.name} has no shape")

    def _step(self, step: Step) -> None:
        if not isinstance(step.op, str) or not _OPERATOR.fullmatch(step.op):
            raise ValueError("an operator's name is library.name.overload")
        for key, _ in step.kwargs:
            if not isinstance(key, str) or not key.isidentifier() or keyword.iskeyword(key):
                raise ValueError(f"no keyword: {key!r}")
        self._reads((*step.args, *(arg for _, arg in step.kwargs)))
        for register in written(step):
            if not _integer(register) or register in self.written:
                raise ValueError(f"register {register} is written a second time, or is none")
            self.written.add(register)
            self.live.add(register)
        for register in step.frees:
            if register not in self.live or register < len(self.program.inputs):
                raise ValueError(f"it frees register {register}, which holds no result")
            self.live.remove(register)

    def _reads(self, args: tuple[Any, ...]) -> None:
        for leaf in leaves(args):
            if isinstance(leaf, Constant) and leaf.name not in self.constants:
                raise ValueError(f"no constant is named {leaf.name!r}")
            if isinstance(leaf, Size) and not _index(leaf.index, len(self.program.values)):
                raise ValueError(f"there is no value {leaf.index}")
            for register in read(leaf, self.program):
                if register not in self.live:
                    raise ValueError(f"register {register} is read before it is written, or after it was freed")


def read(leaf: Any, program: HostProgram) -> list[int]:
    """The registers a part of an argument reads."""
    if isinstance(leaf, Register):
        return [leaf.index]
    return registers_of(program.values[leaf.index]) if isinstance(leaf, Size) else []


def written(step: Step) -> Iterator[int]:
    """The registers a step writes."""
    results = step.results if isinstance(step.results, tuple) else (step.results,)
    return (register for register in results if register is not None)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(f"malformed host program: {message}")


def _checked(program: Any, names: set[str], where: str) -> None:
    try:
        check_size(program, names)
    except ValueError as error:
        raise ValueError(f"malformed host program: {where}: {error}") from error


def _different(kind: str, names: Iterable[Any]) -> None:
    seen: set[str] = set()
    for name in names:
        _require(isinstance(name, str), f"a {kind} is named {name!r}")
        _require(name not in seen, f"two {kind}s are named {name}")
        seen.add(name)


def _integer(value: Any) -> bool:
    return type(value) is int and value >= 0


def _index(value: Any, count: int) -> bool:
    return _integer(value) and value < count
