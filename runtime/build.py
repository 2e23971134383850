"""Runs the C++ compiler: one source in, one shared library out."""

from __future__ import annotations

import subprocess
from pathlib import Path

from attnc.runtime.errors import BuildError
from attnc.runtime.toolchain import Toolchain


def compile_library(
    toolchain: Toolchain, source: Path, output: Path, flags: tuple[str, ...], timeout: float = 120.0
) -> None:
    """Compile ``source`` to the shared library ``output``.

    Raises BuildError, with the compiler's stderr, when it fails or takes longer than ``timeout`` seconds; ``output``
    may then exist half-written, so give a path in a temporary folder.
    """
    # Libraries to link come last: linkers resolve them against what stands before.
    libraries = tuple(flag for flag in flags if flag.startswith("-l"))
    others = tuple(flag for flag in flags if not flag.startswith("-l"))
    here = f"-ffile-prefix-map={source.parent}=."  # no path of this machine in the library
    command = [*toolchain.command, *others, here, str(source), "-o", str(output), *libraries]
    what = f"building {source.name} with {toolchain.version}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=source.parent)
    except subprocess.TimeoutExpired as error:
        raise BuildError(
            f"{what}: no result after {timeout:g} s. Raise the build timeout or try another compiler (CXX).",
            stderr=_text(error.stderr),
            source=source,
        ) from error
    except OSError as error:
        raise BuildError(f"{what}: {error}. Check that {command[0]} can be run.", source=source) from error
    if done.returncode != 0 or not output.exists():
        raise BuildError(
            f"{what}: the compiler exited with {done.returncode}:\n{_first_errors(done.stderr)}\n"
            f"Please report this with the source, {source}; the full output is in BuildError.stderr.",
            stderr=done.stderr,
            source=source,
        )


def _first_errors(stderr: str, limit: int = 5) -> str:
    lines = stderr.splitlines()
    return "\n".join([line for line in lines if "error" in line][:limit] or lines[:limit])


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
