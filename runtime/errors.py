"""Errors of the runtime. Each message says what was being done, with what, what is wrong and what to do."""

from __future__ import annotations

from pathlib import Path


class BuildError(RuntimeError):
    """A C++ compiler rejected a source, ran too long, or made a library that does not load.

    ``stderr`` is everything the compiler said; ``source`` is the file as it was compiled, kept in the store's
    ``failed`` folder (None when it could not be kept).
    """

    def __init__(self, message: str, *, stderr: str = "", source: Path | None = None) -> None:
        super().__init__(message)
        self.stderr = stderr
        self.source = source


class ToolchainMissing(RuntimeError):
    """No C++ compiler was found, or the one that was asked for does not run."""


class PlanMissing(RuntimeError):
    """A plan digest that neither this process nor the store knows."""


class ArtifactError(RuntimeError):
    """A file that is no artifact, is damaged, was written by another version, or can't run on this machine.

    ``entry`` is the part of the file that is wrong; empty where it is the file itself.
    """

    def __init__(self, message: str, *, entry: str = "") -> None:
        super().__init__(message)
        self.entry = entry
