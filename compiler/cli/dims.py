"""``--dim name=range``: which sizes stay symbolic, and how long the examples are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnc.compiler.cli.errors import CliError

if TYPE_CHECKING:
    from torch import Tensor

HELP = (
    "NAME=LO..HI keeps a size symbolic (LO.. without an upper bound); NAME=N fixes the length of the examples. "
    "NAME is B (axis 0 of every input), S (axis 1 of every integer or bool input), or INPUT.AXIS; for an ONNX file "
    "a name of its own. Repeatable."
)


@dataclass(frozen=True)
class DimRange:
    """One ``--dim``: a name and its bounds, inclusive; ``hi`` None is unbounded, lo == hi is a fixed length."""

    name: str
    lo: int
    hi: int | None

    @property
    def fixed(self) -> bool:
        return self.lo == self.hi


def parse_dims(texts: Sequence[str]) -> tuple[DimRange, ...]:
    """The ranges of ``--dim`` arguments. Raises CliError for one that can't be read, and for a name given twice."""
    ranges = tuple(_parse(text) for text in texts)
    names = [r.name for r in ranges]
    for name in names:
        if names.count(name) > 1:
            raise CliError(f"--dim {name}: given {names.count(name)} times; give each name once")
    return ranges


def example_sizes(ranges: Sequence[DimRange]) -> dict[str, int]:
    """``batch`` and ``length`` for made example inputs, where B or S says something about them."""
    words = {"B": "batch", "S": "length"}
    defaults = {"B": 2, "S": 16}
    return {words[r.name]: _example(r, defaults[r.name]) for r in ranges if r.name in words}


def dynamic_shapes(ranges: Sequence[DimRange], inputs: Mapping[str, Any]) -> dict[str, dict[int, Any]] | None:
    """``torch.export``'s dynamic_shapes for named inputs; None where every size is fixed.

    Raises CliError for a name that stands for no axis of any input.
    """
    from torch.export import Dim

    shapes: dict[str, dict[int, Any]] = {}
    for given in ranges:
        axes = _axes(given.name, inputs)
        if given.fixed:
            continue
        dim = Dim(given.name.replace(".", "_"), min=given.lo, max=given.hi)
        for name, axis in axes:
            shapes.setdefault(name, {})[axis] = dim
    return {name: shapes.get(name, {}) for name in inputs} if shapes else None


def _parse(text: str) -> DimRange:
    match = re.fullmatch(r"([A-Za-z_][\w]*(?:\.\d+)?)=(\d+)(\.\.(\d*))?", text)
    if match is None:
        raise CliError(f"--dim {text}: can't be read; write NAME=LO..HI, NAME=LO.. or NAME=N, for example S=2..4096")
    name, lo, dots, hi = match.groups()
    low = int(lo)
    high = low if dots is None else int(hi) if hi else None
    if low < 1 or (high is not None and high < low):
        raise CliError(f"--dim {text}: the range is empty; sizes are at least 1 and LO is at most HI")
    return DimRange(name, low, high)


def _example(given: DimRange, default: int) -> int:
    return max(given.lo, default if given.hi is None else min(default, given.hi))


def _axes(name: str, inputs: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The (input, axis) pairs a name stands for."""
    tensors = {key: value for key, value in inputs.items() if hasattr(value, "dim")}
    if name == "B":
        found = [(key, 0) for key, value in tensors.items() if value.dim() >= 1]
    elif name == "S":
        found = [(key, 1) for key, value in tensors.items() if value.dim() >= 2 and _is_index(value)]
    else:
        key, _, axis = name.partition(".")
        found = [(key, int(axis))] if axis and key in tensors and int(axis) < tensors[key].dim() else []
    if not found:
        shapes = ", ".join(f"{key} {list(value.shape)}" for key, value in tensors.items())
        raise CliError(f"--dim {name}: no input has such an axis; inputs are {shapes}; say B, S or INPUT.AXIS")
    return found


def _is_index(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex()
