"""Looks at the inputs of a host program: kinds, dtypes, ranks, and whether their sizes fit together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from attnc.runtime.host_names import dtype_name, dtype_of
from attnc.runtime.host_program import HostProgram, NamedSize
from attnc.runtime.host_steps import Number, SizeProgram, evaluate

NUMBERS: dict[str, type] = {"int": int, "float": float, "bool": bool}
"""Inputs that are numbers, by the dtype a program gives them."""


def check_kinds(program: HostProgram) -> None:
    """Raise ValueError for an input of a dtype that torch doesn't have."""
    for given in program.inputs:
        if given.dtype not in (*NUMBERS, "any"):
            dtype_of(given.dtype)


def check_inputs(program: HostProgram, inputs: tuple[Any, ...]) -> dict[str, Number]:
    """The named sizes of these inputs. Raises ValueError for one that isn't what the program takes."""
    if len(inputs) != len(program.inputs):
        names = ", ".join(given.name for given in program.inputs)
        raise ValueError(f"the program takes {len(program.inputs)} inputs ({names}), not {len(inputs)}")
    pairs = zip(program.inputs, inputs, strict=True)
    dims = [_dimensions(given.name, given.dtype, len(given.shape), x) for given, x in pairs]
    sizes: dict[str, Number] = {}
    for size in program.sizes:
        found = dims[size.input][size.dim]
        if (size.lo is not None and found < size.lo) or (size.hi is not None and found > size.hi):
            where = _place(program, size.input, size.dim)
            raise ValueError(f"{where} is {found}; the program was made for {_bounds(size)} ({size.name})")
        sizes[size.name] = found
    for i, given in enumerate(program.inputs):
        for dim, (wanted, found) in enumerate(zip(given.shape, dims[i], strict=True)):
            if evaluate(wanted, sizes) != found:
                raise ValueError(f"{_place(program, i, dim)} is {found}, not {_said(program, wanted, sizes)}")
    return sizes


def _dimensions(name: str, dtype: str, rank: int, x: Any) -> tuple[int, ...]:
    """The dimensions of one input; a number's is its value."""
    if dtype == "any":
        return ()
    if dtype in NUMBERS:
        kind = type(x)
        if kind is not NUMBERS[dtype]:
            raise ValueError(f"input {name} is a {kind.__name__}, the program takes {dtype}")
        return (x,) if rank else ()
    if not isinstance(x, Tensor):
        raise ValueError(f"input {name} is a {type(x).__name__}, the program takes a tensor of {dtype}")
    if x.dtype != dtype_of(dtype):
        raise ValueError(f"input {name} is a tensor of {dtype_name(x.dtype)}, the program takes {dtype}")
    if x.dim() != rank:
        raise ValueError(f"input {name} has {x.dim()} dimensions, the program takes {rank}")
    return tuple(x.shape)


def _bounds(size: NamedSize) -> str:
    if size.hi is None:
        return f"at least {size.lo}"
    return f"at most {size.hi}" if size.lo is None else f"{size.lo} to {size.hi}"


def _place(program: HostProgram, i: int, dim: int) -> str:
    given = program.inputs[i]
    return f"input {given.name}" if given.dtype == "int" else f"input {given.name}: dimension {dim}"


def _said(program: HostProgram, wanted: SizeProgram, sizes: Mapping[str, Number]) -> str:
    """A dimension as the program wants it, and where its sizes were read."""
    read = [size for size in program.sizes if size.name in wanted]
    if not read:
        return str(evaluate(wanted, sizes))
    origins = ", ".join(f"{s.name} = {sizes[s.name]} from {_place(program, s.input, s.dim)}" for s in read)
    return f"{evaluate(wanted, sizes)} ({origins})"
