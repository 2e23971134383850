"""Finds a C++ compiler and names it exactly enough to key a build."""

from __future__ import annotations

import functools
import hashlib
import platform
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from attnc.runtime.errors import ToolchainMissing

CANDIDATES = ("g++", "clang++", "c++")


@dataclass(frozen=True)
class Toolchain:
    """A C++ compiler on this machine."""

    command: tuple[str, ...]
    """Program (absolute path) and leading arguments."""
    version: str
    """First line of ``--version``."""
    cpu: str
    """:func:`cpu_id` of this machine: ``-march=native`` makes it part of what a build means."""

    @property
    def id(self) -> str:
        """Text that differs whenever the same source and flags could give another binary."""
        return f"{' '.join(self.command)} | {self.version} | {self.cpu}"


@functools.cache
def cpu_id() -> str:
    """Architecture and a digest of the processor's feature flags, e.g. ``x86_64-3f1c0a9d``."""
    lines = _cpuinfo_lines(("flags", "Features", "model name", "CPU part"))
    text = "\n".join(lines) or platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def isa() -> str:
    """The vector extensions that matter here, best first: ``avx512f avx2 fma`` or ``neon``; empty when unknown."""
    words = cpu_features()
    names = [name for name in ("amx_tile", "avx512_bf16", "avx512f", "avx2", "fma", "f16c") if name in words]
    return " ".join(names) or ("neon" if words & {"asimd", "neon"} else "")


def cpu_features() -> frozenset[str]:
    """The processor's feature flags as the system names them: ``avx2``, ``fma``, ``asimd``, …; empty when unknown."""
    return frozenset(word for line in _cpuinfo_lines(("flags", "Features")) for word in line.split())


def _cpuinfo_lines(keys: tuple[str, ...]) -> list[str]:
    """The ``value`` of the first ``key : value`` line of each key in /proc/cpuinfo."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return []
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in keys:
            found.setdefault(key.strip(), value.strip())
    return list(found.values())


def find_toolchain(cxx: str | None = None) -> Toolchain:
    """The compiler named by ``cxx``, else the first of g++, clang++ and c++ that runs.

    Raises ToolchainMissing; a named compiler that does not run is never replaced by another.
    """
    tried = []
    for candidate in (cxx,) if cxx else CANDIDATES:
        words = shlex.split(candidate)
        program = shutil.which(words[0]) if words else None
        version = _version(program, tuple(words[1:])) if program else None
        if program and version:
            return Toolchain((program, *words[1:]), version, cpu_id())
        tried.append(f"{candidate} ({'does not run' if program else 'not found'})")
    raise ToolchainMissing(
        f"looking for a C++ compiler: {', '.join(tried)}. Install g++ or clang++, or set CXX to a compiler that runs."
    )


@functools.cache
def _version(program: str, arguments: tuple[str, ...]) -> str | None:
    try:
        done = subprocess.run([program, *arguments, "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else None
