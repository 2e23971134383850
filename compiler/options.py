"""Every switch, in one place: type, default, environment variable and meaning. Nothing else reads the environment."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from attnc.codegen.targets import CAPABILITIES


class OptionError(ValueError):
    """An unknown option, or a value an option can't take."""


@dataclass(frozen=True)
class Options:
    """How one graph is compiled."""

    host: Literal["inductor", "aten"] = "inductor"
    """What runs everything that is not attention (ATTNC_HOST)."""
    dump_ir: str | None = None
    """A folder for one numbered IR file per pass, with the kernels beside (ATTNC_DUMP)."""
    verify: Literal["structure", "numeric"] | None = None
    """``structure``: verify the IR between passes; ``numeric``: also compare every pass's result on the example inputs
    and name the first pass that moved a number (ATTNC_VERIFY)."""
    cache_dir: str | None = None
    """The build store; default ~/.cache/attnc (ATTNC_CACHE_DIR)."""
    target: str | None = None
    """What kernels are emitted for: ``cpu-avx2``, ``sm_90``, ``triton-interpret``, …; default: the device of each
    attention (ATTNC_TARGET)."""
    cxx: str | None = None
    """The C++ compiler; default g++, then clang++ (CXX)."""

    def __post_init__(self) -> None:
        _check("host", self.host, ("inductor", "aten"))
        _check("verify", self.verify, (None, "structure", "numeric"))
        _check("target", self.target, (None, *sorted(CAPABILITIES)))

    @staticmethod
    def make(options: Mapping[str, Any] | None = None, mode: str | None = None) -> Options:
        """Options from the environment, then ``torch.compile``'s ``mode`` and ``options``.

        Raises OptionError for a name or value that isn't known, listing those that are.
        """
        _check("mode", mode, (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"))
        given = dict(options or {})
        known = {f.name for f in dataclasses.fields(Options)}
        if unknown := sorted(set(given) - known):
            raise OptionError(f"unknown attnc option {unknown[0]!r}; options are {', '.join(sorted(known))}")
        return Options(**{**_from_environment(), **given})

    @property
    def store_root(self) -> Path:
        """The folder of the build store."""
        return Path(self.cache_dir).expanduser() if self.cache_dir else default_cache_dir()


def default_cache_dir() -> Path:
    """``ATTNC_CACHE_DIR``, else ``~/.cache/attnc``."""
    return Path(os.environ.get("ATTNC_CACHE_DIR") or "~/.cache/attnc").expanduser()


def disabled() -> bool:
    """``ATTNC_DISABLE=1``: every graph goes to the host untouched."""
    return os.environ.get("ATTNC_DISABLE", "") not in ("", "0")


def debug() -> bool:
    """``ATTNC_DEBUG=1``: commands show tracebacks; internal errors are raised instead of handed to the host."""
    return os.environ.get("ATTNC_DEBUG", "") not in ("", "0")


def _from_environment() -> dict[str, Any]:
    names = {
        "host": "ATTNC_HOST",
        "dump_ir": "ATTNC_DUMP",
        "verify": "ATTNC_VERIFY",
        "cache_dir": "ATTNC_CACHE_DIR",
        "target": "ATTNC_TARGET",
        "cxx": "CXX",
    }
    return {option: os.environ[name] for option, name in names.items() if os.environ.get(name)}


def _check(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        choices = ", ".join(repr(a) for a in allowed)
        raise OptionError(f"attnc option {name}={value!r}: choose one of {choices}")
