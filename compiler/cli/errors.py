"""How a command fails: one message on stderr and a status, never a traceback (``ATTNC_DEBUG=1`` shows it)."""

from __future__ import annotations

from attnc.compiler.frontends.onnx.errors import OnnxError
from attnc.compiler.options import OptionError
from attnc.compiler.unsavable import NotSavable
from attnc.ir.diagnostics import AttncError
from attnc.runtime.errors import ArtifactError, BuildError, PlanMissing, ToolchainMissing


class CliError(Exception):
    """A command can't do what it was asked; the message says why and what to do."""


EXPECTED = (
    CliError, ArtifactError, AttncError, NotSavable, OnnxError, OptionError, BuildError, PlanMissing, ToolchainMissing,
    OSError,
)  # fmt: skip
"""Errors whose text is written for users. Anything else is shown with its type, as a fault of ours or of the model."""


def describe(error: Exception) -> str:
    """The text to show for ``error``."""
    if isinstance(error, EXPECTED):
        return f"attnc: {error}"
    return f"attnc: {type(error).__name__}: {error}\n(ATTNC_DEBUG=1 shows where)"
