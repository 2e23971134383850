"""How an emitted kernel is compiled and called: parameters, constants and compile options. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Parameter:
    """One run-time parameter of a kernel, in order.

    ``type`` is Triton's name of it: ``*bf16``, ``i32``, ``i64``, ``tensordesc<bf16[128, 64]>``.
    """

    name: str
    type: str
    assumed: Literal["nothing", "aligned", "one"] = "nothing"
    """What code compiled ahead of time takes for granted, and a caller has to check: that the value (an address in
    bytes, a number) is a multiple of 16, or that it is 1 and no parameter of the machine code."""


@dataclass(frozen=True)
class Launch:
    """The kernel of an emitted module: its function's name, its parameters and what is fixed when it is compiled."""

    kernel: str
    parameters: tuple[Parameter, ...]
    constants: Mapping[str, int]
    """``tl.constexpr`` parameters of the function, after the run-time ones."""
    num_warps: int
    num_stages: int

    @property
    def described(self) -> bool:
        """Whether operands come as tensor descriptors."""
        return any(parameter.type.startswith("tensordesc<") for parameter in self.parameters)
