"""Where the runtime builds and what with: values, set by the compiler.

The runtime takes its settings as values. Only a process that replays a compiled graph without the compiler (an
Inductor cache hit, an AOTInductor package) has nobody to set them; :func:`default_config` serves it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Route = Literal["auto", "launcher", "ctypes", "aten"]


@dataclass(frozen=True)
class Config:
    """Settings of the runtime."""

    cache_dir: Path
    """Root of the build store; made on first use."""
    cxx: str | None = None
    """C++ compiler, with leading arguments if any (``ccache g++``); None looks for g++, then clang++, then c++."""
    build_timeout: float = 120.0
    """Seconds one compiler run may take."""
    route: Route = "auto"
    """How kernels are called: ``auto`` takes the first that works of launcher, ctypes, aten."""


_current: Config | None = None


def default_config() -> Config:
    """Settings for a process that no compiler configured.

    The one place in the runtime that reads the environment: ``ATTNC_CACHE_DIR`` (default ``~/.cache/attnc``) and
    ``CXX``, with the meaning they have for the compiler.
    """
    cache_dir = os.environ.get("ATTNC_CACHE_DIR")
    root = Path(cache_dir) if cache_dir else Path.home() / ".cache" / "attnc"
    return Config(cache_dir=root, cxx=os.environ.get("CXX") or None)


def configure(config: Config) -> None:
    """Use ``config`` from now on. Kernels already loaded stay loaded; a route already chosen stays."""
    global _current
    _current = config


def current() -> Config:
    """The settings in force: the configured ones, else the defaults."""
    return _current or default_config()
