"""Operators, dtypes and other objects of torch by the names a host program has for them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from attnc.runtime.abi import DTYPES
from attnc.runtime.host_allowed import allowed_name, allowed_schema
from attnc.runtime.host_program import HostProgram
from attnc.runtime.host_steps import Literal

_MORE_DTYPES = {
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "c64": torch.complex64,
    "c128": torch.complex128,
}
TORCH_DTYPES: dict[str, torch.dtype] = {**DTYPES, **_MORE_DTYPES}
"""Dtype by the name a program has for it; other dtypes have torch's own name."""
_DTYPE_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


def operators(program: HostProgram) -> dict[str, Callable[..., Any]]:
    """The operators of a program by name. Raises ValueError that lists all it may not call and all torch lacks."""
    names = dict.fromkeys(step.op for step in program.steps)
    _check_allowed([name for name in names if not allowed_name(name)])
    if any(name.startswith("attnc.") for name in names):
        import_module("attnc.runtime.ops")  # registers them
    if any(name.startswith("onnx.") for name in names):
        import_module("attnc.runtime.onnx_region")  # registers it
    found = {name: _operator(name) for name in names}
    unknown = [name for name, operator in found.items() if operator is None]
    if unknown:
        raise ValueError(
            f"binding a host program: torch {torch.__version__} has no operator {', '.join(unknown)}. It may be one of "
            "another version of torch, or of a library that has to be imported first."
        )
    known: dict[str, Any] = {name: operator for name, operator in found.items() if operator is not None}
    _check_allowed([name for name, operator in known.items() if not allowed_schema(operator._schema)])
    return known


def _check_allowed(barred: list[str]) -> None:
    if barred:
        raise ValueError(f"binding a host program: it may not call {', '.join(barred)}")


def allowed(operator: torch._ops.OpOverload[Any, Any], name: str) -> bool:
    """Whether a program may call an operator."""
    return allowed_name(name) and allowed_schema(operator._schema)


def _operator(name: str) -> torch._ops.OpOverload[Any, Any] | None:
    library, operator, overload = name.split(".")
    if library == "prims":
        import_module("torch._prims")  # registers them
    try:
        found = getattr(getattr(getattr(torch.ops, library), operator), overload)
    except AttributeError:
        return None
    return found if isinstance(found, torch._ops.OpOverload) else None


def literal(value: Literal) -> Any:
    """The object of torch a literal names. Raises ValueError where torch has none."""
    if value.kind == "float":
        return float(value.text)
    if value.kind == "dtype":
        return dtype_of(value.text)
    if value.kind == "device":
        try:
            return torch.device(value.text)
        except RuntimeError as error:
            raise ValueError(f"binding a host program: {error}") from error
    wanted = {"layout": torch.layout, "memory_format": torch.memory_format}[value.kind]
    return _of_torch(value.text, wanted)


def dtype_of(name: str) -> torch.dtype:
    """The dtype of a name. Raises ValueError where torch has none."""
    return TORCH_DTYPES[name] if name in TORCH_DTYPES else _of_torch(name, torch.dtype)


def _of_torch(name: str, kind: type) -> Any:
    found = getattr(torch, name, None)
    if not isinstance(found, kind):
        raise ValueError(f"binding a host program: torch has no {kind.__name__} named {name}")
    return found


def dtype_name(dtype: torch.dtype) -> str:
    """The name a program has for a dtype."""
    return _DTYPE_NAMES.get(dtype, str(dtype).removeprefix("torch."))
