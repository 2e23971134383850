"""Values of callers as a host program takes them, and its results as they expect them: numpy, torch, DLPack.

Memory is shared where it can be, so that what a program writes to an input shows in the caller's array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from attnc.runtime.host_bound import Bound
from attnc.runtime.host_inputs import NUMBERS
from attnc.runtime.host_names import dtype_name, dtype_of
from attnc.runtime.host_program import Input

_ALIGNMENT = 64
"""Of what torch allocates, in bytes: libraries may round otherwise where memory begins elsewhere."""


def run_named(
    bound: Bound, outputs: Sequence[str], inputs: Mapping[str, Any], written: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Results by name, of inputs by name: numpy arrays where every array given is one, else torch tensors.

    ``written``: inputs that the program writes. Raises ValueError for a name that is missing or unknown and for a
    value that isn't what the program takes; TypeError for one of an unknown kind.
    """
    wanted = [given.name for given in bound.program.inputs]
    missing = [given.name for given in bound.program.inputs if given.name not in inputs and given.dtype != "any"]
    unknown = [str(name) for name in inputs if name not in wanted]
    if missing or unknown:
        problems = [f"{', '.join(missing)} missing"] * bool(missing) + [f"{', '.join(unknown)} unknown"] * bool(unknown)
        raise ValueError(f"running the program: {' and '.join(problems)}; its inputs are {', '.join(wanted)}")
    values = [inputs.get(name) for name in wanted]
    found = run_ordered(bound, values, written)
    return dict(zip(outputs, found, strict=True))


def run_ordered(bound: Bound, inputs: Sequence[Any], written: frozenset[str] = frozenset()) -> tuple[Any, ...]:
    """As :func:`run_named`, inputs and results in order."""
    taken = bound.program.inputs
    if len(inputs) != len(taken):
        names = ", ".join(given.name for given in taken)
        raise ValueError(f"running the program: it takes {len(taken)} inputs ({names}), not {len(inputs)}")
    pairs = zip(taken, inputs, strict=True)
    found = bound(*(_taken(given, value, given.name in written) for given, value in pairs))
    arrays = [value for value in inputs if _is_array(value)]
    if arrays and all(isinstance(value, numpy.ndarray | numpy.generic) for value in arrays):
        return tuple(_to_numpy(result) if isinstance(result, Tensor) else result for result in found)
    return found


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | numpy.ndarray | numpy.generic) or hasattr(value, "__dlpack__")


def _taken(given: Input, value: Any, written: bool) -> Any:
    """One input as the program takes it."""
    if given.dtype == "any":
        return None
    if given.dtype in NUMBERS:
        return value.item() if _is_array(value) and getattr(value, "size", None) == 1 else _number(value)
    if isinstance(value, Tensor):
        return value
    if isinstance(value, numpy.ndarray | numpy.generic):
        return _from_numpy(given, numpy.asarray(value), written)
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value)
    raise TypeError(
        f"running the program: input {given.name} is a {type(value).__name__}; give a numpy array, a torch tensor or "
        f"anything with __dlpack__"
    )


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value


def _from_numpy(given: Input, array: Any, written: bool) -> Tensor:
    kind = dtype_of(given.dtype)
    if not array.dtype.isnative or array.dtype.kind not in "biufc":
        raise ValueError(f"input {given.name} is an array of {array.dtype}, the program takes {dtype_name(kind)}")
    usable = array.flags.writeable and all(stride >= 0 and stride % array.itemsize == 0 for stride in array.strides)
    if written and not usable:
        raise ValueError(f"input {given.name} is written by the program: give an array that can be, in ordinary order")
    if not usable or (not written and array.ctypes.data % _ALIGNMENT):
        return torch.from_numpy(array.copy()).clone()
    return torch.from_numpy(array)


def _to_numpy(result: Tensor) -> Any:
    """numpy has no bfloat16 and no float8: such results are widened to float32, which loses nothing."""
    plain = result.detach().cpu().resolve_conj().resolve_neg()
    has_none = plain.dtype.is_floating_point and plain.dtype not in (torch.float64, torch.float32, torch.float16)
    return (plain.float() if has_none else plain).numpy()
