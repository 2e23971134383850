"""Source and compiled model side by side: random and adversarial inputs at several sizes, judged output by output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnc.compiler.inspection.adversarial import Inputs, input_sets, learn_sizes, resized
from attnc.compiler.inspection.policy import judge
from attnc.compiler.interpreter import Interpreter
from attnc.ir.graph import Graph
from attnc.ir.types import TensorType

Run = Callable[[Sequence[Any]], Sequence[Any]]
"""Outputs for the inputs that are data, both in the graph's order."""

RANDOM_SETS = 3
SEED = 20
LONGEST = 97
"""The greatest length of a random set."""


@dataclass(frozen=True)
class Row:
    """One output for one set of inputs."""

    inputs: str
    output: str
    detail: str
    """Both errors and the bound, or what differs."""
    passed: bool


@dataclass(frozen=True)
class Checked:
    """What was compared, and the sets that the source itself doesn't take, with its reason."""

    rows: tuple[Row, ...]
    left_out: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return all(row.passed for row in self.rows)


def check_program(
    graph: Graph, inputs: Sequence[Any], names: Mapping[str, str], source: Run, program: Run, outputs: Sequence[str]
) -> Checked:
    """Compare ``program`` with ``source`` by the numerics policy.

    ``graph`` is the captured graph before any pass, with ``inputs`` for it; run in float64 it is the reference.
    ``names`` has the name of each input that is data, ``outputs`` one for each output.
    """
    rows: list[Row] = []
    left_out: list[str] = []
    for title, given in _sets(graph, inputs, names).items():
        data = [x for value, x in zip(graph.inputs, given, strict=True) if value.name in names]
        try:
            wanted = source([_copied(x) for x in data])
            reference = Interpreter(graph, wide=True).run([_copied(x) for x in given])
        except Exception as error:  # the source decides what it takes
            left_out.append(f"{title}: {str(error).strip().splitlines()[0] if str(error).strip() else type(error)}")
            continue
        rows += _compared(title, program, data, wanted, reference, outputs)
    return Checked(tuple(rows), tuple(left_out))


def _sets(graph: Graph, inputs: Sequence[Any], names: Mapping[str, str]) -> dict[str, Inputs]:
    """Named input sets in which weights are what they are."""
    sets = {"as given": list(inputs)}
    for number in range(RANDOM_SETS):
        sets |= _random(graph, inputs, names, number)
    sets |= input_sets(graph, inputs, names)
    weights = [i for i, value in enumerate(graph.inputs) if value.name not in names]
    return {title: given for title, given in sets.items() if all(given[i] is inputs[i] for i in weights)}


def _random(graph: Graph, inputs: Sequence[Any], names: Mapping[str, str], number: int) -> dict[str, Inputs]:
    """Other numbers at other sizes. Integers are drawn from those of the example, which a vocabulary holds."""
    generator = torch.Generator().manual_seed(SEED + number)
    known = learn_sizes(graph, inputs)
    sizes = {name: _length(graph, name, generator) for name in known}
    made = [
        _drawn(x, generator) if value.name in names and isinstance(value.type, TensorType) else x
        for value, x in zip(graph.inputs, resized(graph, inputs, sizes), strict=True)
    ]
    made = [x if value.name in names else old for value, x, old in zip(graph.inputs, made, inputs, strict=True)]
    title = ", ".join(f"{name} = {length}" for name, length in sizes.items()) or "the same sizes"
    return {f"random {number + 1}: {title}": made}


def _length(graph: Graph, name: str, generator: torch.Generator) -> int:
    bounds = graph.sizes[name]
    most = min(bounds.hi or LONGEST, max(LONGEST, bounds.lo))
    return int(torch.randint(bounds.lo, most + 1, (), generator=generator))


def _drawn(x: Tensor, generator: torch.Generator) -> Tensor:
    if x.is_floating_point():
        return torch.randn(x.shape, generator=generator).to(x.dtype)
    places = torch.randint(0, max(1, x.numel()), x.shape, generator=generator)
    return x.reshape(-1)[places.reshape(-1)].reshape(x.shape) if x.numel() else x


def _copied(x: Any) -> Any:
    return x.clone() if isinstance(x, Tensor) else x


def _compared(
    title: str,
    program: Run,
    data: Sequence[Any],
    wanted: Sequence[Any],
    reference: Sequence[Any],
    outputs: Sequence[str],
) -> Iterator[Row]:
    try:
        made = program([_copied(x) for x in data])
    except Exception as error:  # the source took these inputs: failing is a fault
        yield Row(title, ", ".join(outputs), f"raises {type(error).__name__}: {error}", passed=False)
        return
    for name, ours, theirs, ref in zip(outputs, made, wanted, reference, strict=True):
        yield _row(title, name, ours, theirs, ref)


def _row(title: str, name: str, ours: Any, theirs: Any, ref: Any) -> Row:
    if not isinstance(ours, Tensor) or not isinstance(theirs, Tensor):
        return Row(title, name, f"{ours} for {theirs}", passed=bool(ours == theirs))
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        detail = f"{ours.dtype} {list(ours.shape)} for {theirs.dtype} {list(theirs.shape)}"
        return Row(title, name, detail, passed=False)
    if not ours.is_floating_point():
        wrong = int((ours != theirs).sum())
        return Row(title, name, f"{wrong} of {ours.numel()} differ", passed=not wrong)
    verdict = judge(ours, theirs, ref)
    detail = f"error {verdict.ours:.1e}, the source's {verdict.eager:.1e}, allowed {verdict.bound:.1e}"
    return Row(title, name, detail, verdict.passed)
