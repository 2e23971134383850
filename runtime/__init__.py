"""Runs what the compiler wrote: the build store, the custom ops and the ATen reference.

Importing this package does no work and loads neither torch nor the compiler; names below load on first use. Ops are
registered by importing :mod:`attnc.runtime.ops`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnc.runtime.config import Config, configure
    from attnc.runtime.errors import BuildError, PlanMissing, ToolchainMissing
    from attnc.runtime.kernels import kernel, register_plan, resolve
    from attnc.runtime.routes import route
    from attnc.runtime.store import Store

_HOMES = {
    "Config": "config",
    "configure": "config",
    "BuildError": "errors",
    "PlanMissing": "errors",
    "ToolchainMissing": "errors",
    "kernel": "kernels",
    "register_plan": "kernels",
    "resolve": "kernels",
    "route": "routes",
    "Store": "store",
}

__all__ = [
    "BuildError",
    "Config",
    "PlanMissing",
    "Store",
    "ToolchainMissing",
    "configure",
    "kernel",
    "register_plan",
    "resolve",
    "route",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
