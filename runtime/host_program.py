"""A model as a flat list of operator calls: frozen, JSON-serialisable, standard library only until it is bound.

Inputs fill the first registers. A step calls one operator of torch's dispatcher by name and leaves its results in
registers of their own. Every number that depends on a length is a size program over named sizes, and each named size is
read from a dimension of an input. Constants (weights, buffers, tables) are known by name; their tensors live outside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnc.runtime.host_check import check
from attnc.runtime.host_steps import Arg, SizeProgram, decode, encode

if TYPE_CHECKING:
    from torch import Tensor

    from attnc.runtime.host_bound import Bound

HOST_PROGRAM_VERSION = 1

Results = int | None | tuple[int | None, ...]
"""Registers of a step's results: of the one it has, or of each element of a tuple; None for what nobody reads."""


@dataclass(frozen=True)
class NamedSize:
    """A size read from dimension ``dim`` of input ``input``, with inclusive bounds; None: unbounded."""

    name: str
    input: int
    dim: int
    lo: int | None = 0
    hi: int | None = None


@dataclass(frozen=True)
class Input:
    """One input of a program: what it has to be."""

    name: str
    dtype: str
    """Of a tensor ``f32``, ``i64``, …; ``int``, ``float`` or ``bool`` for a number; ``any`` for what no step reads."""
    shape: tuple[SizeProgram, ...] = ()
    """A tensor's dimensions, over named sizes. An ``int`` has one: its value."""


@dataclass(frozen=True)
class ConstantInfo:
    """What a constant has to be."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One call of an operator."""

    op: str
    """Name and overload, ``aten.linear.default``."""
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...] = ()
    results: Results = None
    frees: tuple[int, ...] = ()
    """Registers that no later step reads. Inputs are never among them: they are the caller's."""


@dataclass(frozen=True)
class HostProgram:
    """A model as a list of steps. Raises ValueError where it is none: a register read before it is written, …"""

    sizes: tuple[NamedSize, ...]
    inputs: tuple[Input, ...]
    constants: tuple[ConstantInfo, ...]
    values: tuple[SizeProgram, ...]
    """What arguments of kind :class:`~attnc.runtime.host_steps.Size` stand for."""
    steps: tuple[Step, ...]
    outputs: tuple[Arg, ...]
    version: int = HOST_PROGRAM_VERSION

    def __post_init__(self) -> None:
        if self.version != HOST_PROGRAM_VERSION:
            raise ValueError(f"host program version {self.version}, this build reads {HOST_PROGRAM_VERSION}")
        check(self)

    def bind(self, constants: Mapping[str, Tensor]) -> Bound:
        """The program with its constants, ready to be called. Their memory is shared, so that writes to them last.

        Raises ValueError for constants that are missing or of another dtype or shape, and for operators that are
        unknown or not allowed; each names all of them.
        """
        from attnc.runtime.host_bound import Bound  # imports torch

        return Bound(self, constants)

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces."""
        data = {
            "version": self.version,
            "sizes": [vars(size) for size in self.sizes],
            "inputs": [vars(given) for given in self.inputs],
            "constants": [vars(constant) for constant in self.constants],
            "values": self.values,
            "steps": [_step_json(step) for step in self.steps],
            "outputs": encode(self.outputs),
        }
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @staticmethod
    def from_json(text: str) -> HostProgram:
        """The program :meth:`to_json` wrote. Raises ValueError on another version or a malformed text."""
        try:
            data = json.loads(text)
            if data["version"] != HOST_PROGRAM_VERSION:
                raise ValueError(f"host program version {data['version']}, this build reads {HOST_PROGRAM_VERSION}")
            return HostProgram(
                tuple(NamedSize(**size) for size in data["sizes"]),
                tuple(Input(i["name"], i["dtype"], _programs(i["shape"])) for i in data["inputs"]),
                tuple(ConstantInfo(c["name"], c["dtype"], tuple(c["shape"])) for c in data["constants"]),
                _programs(data["values"]),
                tuple(_step(place, step) for place, step in enumerate(data["steps"])),
                tuple(decode(item) for item in data["outputs"]),
            )
        except KeyError as error:
            raise ValueError(f"malformed host program: no {error}") from error
        except (TypeError, AttributeError, RecursionError, json.JSONDecodeError) as error:
            raise ValueError(f"malformed host program: {error}") from error


def _programs(data: Any) -> tuple[SizeProgram, ...]:
    return tuple(tuple(program) for program in data)


def _step_json(step: Step) -> dict[str, Any]:
    return {**vars(step), "args": encode(step.args), "kwargs": [[key, encode(arg)] for key, arg in step.kwargs]}


def _step(place: int, data: Any) -> Step:
    """One step of a JSON text. Raises ValueError."""
    try:
        results = data["results"]
        return Step(
            data["op"],
            tuple(decode(arg) for arg in data["args"]),
            tuple((key, decode(arg)) for key, arg in data["kwargs"]),
            tuple(results) if isinstance(results, list) else results,
            tuple(data["frees"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"malformed host program: step {place}: {error!r}") from error
