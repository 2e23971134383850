"""What a compiled graph takes and gives, by name: for callers of its host program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from attnc.ir.dims import show_dim
from attnc.ir.graph import Graph
from attnc.ir.types import Dim, ScalarType, TensorType
from attnc.ir.values import Arg, Value
from attnc.runtime.artifact.manifest import Port
from attnc.runtime.host_program import HostProgram
from attnc.runtime.host_steps import Arg as StepArg
from attnc.runtime.host_steps import Register, leaves


def output_names(spec: pytree.TreeSpec, given: Sequence[str] | None = None) -> tuple[str, ...]:
    """A name for each leaf of a model's results: its keys and fields joined by dots (``past_key_values.0.1``).

    ``given``: the names a model has for them. Results without keys are ``output``, or ``output_0``, ``output_1``, …
    """
    if given is not None and len(given) == len(set(given)) == spec.num_leaves:
        return tuple(given)
    return unique([_joined(path) for path in _paths(spec)])


def _paths(spec: pytree.TreeSpec) -> Iterator[tuple[str, ...]]:
    """The keys that lead to each leaf."""
    if spec.is_leaf():
        yield ()
        return
    children = spec.children()
    for key, child in zip(_keys(spec.context, len(children)), children, strict=True):
        for path in _paths(child):
            yield (key, *path)


def _keys(context: Any, count: int) -> list[str]:
    """The names of a node's children: keys of mappings, fields of named tuples and data classes, else numbers."""
    if hasattr(context, "_fields"):
        return list(context._fields)
    nested = context if isinstance(context, list | tuple) else ()
    for names in (context, *nested):
        if isinstance(names, list | tuple) and len(names) == count and all(isinstance(n, str | int) for n in names):
            return [str(name) for name in names]
    return [str(i) for i in range(count)]


def unique(names: Sequence[str]) -> tuple[str, ...]:
    """The names, with a number behind those that were there before."""
    found: dict[str, None] = {}
    for name in names:
        free, count = name, 0
        while free in found:
            count += 1
            free = f"{name}_{count}"
        found[free] = None
    return tuple(found)


def input_ports(program: HostProgram, graph: Graph, names: Sequence[str]) -> tuple[Port, ...]:
    """The inputs of a program; ``names``: of the IR's inputs they come from, in order."""
    types = {value.name: value.type for value in graph.inputs}
    written = written_inputs(program)
    ports = []
    for i, (given, name) in enumerate(zip(program.inputs, names, strict=True)):
        type = types[name]
        shape = tuple(map(_dim, type.shape)) if isinstance(type, TensorType) else ()
        ports.append(Port(given.name, given.dtype, shape, i in written))
    return tuple(ports)


def output_ports(names: Sequence[str], values: Sequence[Arg]) -> tuple[Port, ...]:
    """The outputs of a graph."""
    return tuple(_output(name, value) for name, value in zip(names, values, strict=True))


def written_inputs(program: HostProgram) -> set[int]:
    """The inputs that a step writes, themselves or through a view of them."""
    bases: dict[int, set[int]] = {i: {i} for i in range(len(program.inputs))}
    written: set[int] = set()
    for step in program.steps:
        schema = _schema(step.op)
        named = dict(step.kwargs)
        shared: set[int] = set()
        for place, argument in enumerate(schema.arguments):
            arg = step.args[place] if place < len(step.args) else named.get(argument.name)
            reached = _bases(arg, bases)
            if argument.alias_info is not None:
                shared |= reached
                written |= reached if argument.alias_info.is_write else set()
        for register in _registers(step.results):
            bases[register] = shared
    return written


def _bases(arg: StepArg, bases: Mapping[int, set[int]]) -> set[int]:
    found: set[int] = set()
    for leaf in leaves(arg):
        if isinstance(leaf, Register):
            found |= bases.get(leaf.index, set())
    return found


def _registers(results: Any) -> list[int]:
    whole = results if isinstance(results, tuple) else (results,)
    return [register for register in whole if register is not None]


def _schema(name: str) -> Any:
    library, operator, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, library), operator), overload)._schema


def _joined(path: tuple[str, ...]) -> str:
    """``past_key_values.0.1`` of a path of keys; numbers alone become ``output_0``."""
    if not path:
        return "output"
    return ".".join(path) if not path[0].isdigit() else f"output_{'.'.join(path)}"


def _output(name: str, value: Arg) -> Port:
    if isinstance(value, Value) and isinstance(value.type, TensorType):
        return Port(name, value.type.dtype.value, tuple(map(_dim, value.type.shape)))
    if isinstance(value, Value) and isinstance(value.type, ScalarType):
        return Port(name, value.type.kind, ())
    return Port(name, "none" if value is None else type(value).__name__, ())


def _dim(dim: Dim) -> str:
    return show_dim(dim)
