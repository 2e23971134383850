"""Op names of FX targets, and back.

``aten.softmax.int`` for an operator overload, ``hop.cond`` for a higher-order op, ``py.mul`` for Python arithmetic on
sizes, ``torch.<qualified name>`` for any other callable.
"""

from __future__ import annotations

import builtins
import importlib
import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from attnc.compiler.frontends.torch import private

_OPERATOR = (
    "getitem add sub mul neg mod floordiv truediv pow lt le gt ge eq ne and_ or_ not_ abs pos xor lshift rshift".split()
)
_SYMBOLIC = "sym_max sym_min sym_not sym_float sym_int sym_ite sym_sum sym_sqrt".split()
_MATH = "floor ceil trunc".split()
_BUILTIN = "round max min".split()

PYTHON: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in _OPERATOR},
    **{name: getattr(torch, name) for name in _SYMBOLIC if hasattr(torch, name)},
    **{name: getattr(math, name) for name in _MATH},
    **{name: getattr(builtins, name) for name in _BUILTIN},
}
"""``py.*`` op name (without the dialect) to the Python function."""

STATE: dict[str, Callable[..., Any]] = {
    "torch.set_grad_enabled": private.set_grad_enabled,
    "torch.enter_autocast": private.enter_autocast,
    "torch.exit_autocast": private.exit_autocast,
}
"""Changes of torch's global state: declared ops of the IR, under names of their own."""

_STATE_NAMES = {function: name for name, function in STATE.items()}
_PYTHON_NAMES = {function: name for name, function in PYTHON.items()}


def op_name(target: Any) -> str:
    """The IR op name of a ``call_function`` target."""
    if isinstance(target, torch._ops.OpOverload):
        return f"{target.namespace}.{target._schema.name.split('::')[1]}.{target._overloadname}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"hop.{private.hop_name(target)}"
    if target in _PYTHON_NAMES:
        return f"py.{_PYTHON_NAMES[target]}"
    if target in _STATE_NAMES:
        return _STATE_NAMES[target]
    module = getattr(target, "__module__", None) or "torch"
    name = getattr(target, "__qualname__", None) or getattr(target, "__name__", type(target).__name__)
    path = f"{module}.{name}".removeprefix("torch.")
    return f"torch.{path}"


def resolve(name: str) -> Any:
    """The callable an op name stands for.

    Raises LookupError where there is none (an operator of a library that isn't loaded, a callable without a path).
    """
    dialect, _, rest = name.partition(".")
    if dialect == "py" and rest in PYTHON:
        return PYTHON[rest]
    if name in STATE:
        return STATE[name]
    try:
        if dialect == "hop":
            return getattr(torch.ops.higher_order, rest)
        if dialect == "torch":
            return _by_path(rest)
        operator_name, _, overload = rest.rpartition(".")
        return getattr(getattr(getattr(torch.ops, dialect), operator_name), overload)
    except (AttributeError, ImportError) as error:
        raise LookupError(f"no torch callable is named {name}") from error


def _by_path(path: str) -> Any:
    """``amp.autocast_mode.f`` under torch, else under the module the path names itself."""
    parts = path.split(".")
    for root in (["torch", *parts], parts):
        for cut in range(len(root) - 1, 0, -1):
            try:
                found: Any = importlib.import_module(".".join(root[:cut]))
                for part in root[cut:]:
                    found = getattr(found, part)
            except (ImportError, AttributeError):
                continue
            return found
    raise AttributeError(path)
