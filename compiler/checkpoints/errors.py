"""What goes wrong with a checkpoint."""

from __future__ import annotations

from attnc.ir.diagnostics import AttncError


class CheckpointError(AttncError):
    """A checkpoint that is absent, damaged or of an unknown kind; the message says which file and what to do."""


def first_line(error: BaseException) -> str:
    """What the message says before its hints, in one line; the type where it says nothing."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
