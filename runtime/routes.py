"""How ``attnc::attention`` reaches a kernel: chosen once per process, on the first call or when asked.

``launcher``: the C++ launcher (a few microseconds a call). ``ctypes``: Python calls the kernel; where the launcher
can't be built. ``aten``: torch operators compute it; where no C++ compiler is.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnc.runtime import config, kernels, launcher
from attnc.runtime.dispatch import OpLibrary
from attnc.runtime.errors import BuildError, ToolchainMissing


class Chosen(NamedTuple):
    """The route in use, and why it isn't a faster one (empty for the launcher)."""

    name: str
    reason: str = ""


_lock = threading.Lock()
_chosen: Chosen | None = None
_python: OpLibrary | None = None
"""Holds the Python kernel's registration, which ends with this object."""


def route() -> Chosen:
    """The route of this process; chooses it on the first call, which may build the launcher (seconds).

    Gives one RuntimeWarning where a slower route than the launcher had to be taken; never raises for that.
    """
    global _chosen
    if _chosen is None:
        import attnc.runtime.ops  # noqa: F401 - defines the schema that kernels are registered for

        with _lock:
            if _chosen is None:
                _chosen = _choose(config.current().route)
    return _chosen


def _choose(wanted: config.Route) -> Chosen:
    if wanted in ("auto", "launcher"):
        try:
            launcher.load()
            return Chosen("launcher")
        except (ToolchainMissing, BuildError) as error:
            chosen = _slower(error)
    else:
        chosen = Chosen(wanted, "asked for by the configuration")
    _register_python(chosen.name)
    return chosen


def _slower(error: ToolchainMissing | BuildError) -> Chosen:
    """The route without a launcher. Kernels that came in an artifact are there without a compiler too."""
    if isinstance(error, ToolchainMissing) and not kernels.has_kernels():
        kernels.warn_no_toolchain(str(error))
        return Chosen("aten", str(error))
    warnings.warn(
        f"attnc: the C++ launcher can't be built, kernels are called from Python (right, but each call takes "
        f"about 0.1 ms longer): {error}",
        RuntimeWarning,
        stacklevel=4,
    )
    return Chosen("ctypes", str(error))


def _register_python(name: str) -> None:
    global _python
    _python = OpLibrary("IMPL")
    by_python = name == "aten" and config.current().route == "aten"  # else kernels may come later, in an artifact
    _python.kernel("attention", _by_python if by_python else _by_ctypes, "CPU")


def _by_python(
    q: Tensor, k: Tensor, v: Tensor, side: Sequence[Tensor | None], plan: int, sizes: Sequence[int]
) -> tuple[Tensor, Tensor]:
    out, lse = torch.ops.attnc.attention_python.default(q, k, v, side, plan, sizes)
    return out, lse


def _by_ctypes(
    q: Tensor, k: Tensor, v: Tensor, side: Sequence[Tensor | None], plan: int, sizes: Sequence[int]
) -> tuple[Tensor, Tensor]:
    from attnc.runtime import direct  # only this route needs the caller

    kernel = kernels.kernel(plan)
    if kernel is None:
        return _by_python(q, k, v, side, plan, sizes)
    return direct.attention(kernel, q, k, v, side, sizes)
