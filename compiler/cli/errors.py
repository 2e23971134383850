"""How a command fails: one message on stderr and a status, never a traceback (``ATTNC_DEBUG=1`` shows it)."""

from __future__ import annotations

import sys

from attnc.compiler.frontends.onnx.errors import OnnxError
from attnc.compiler.options import OptionError
from attnc.compiler.unsavable import NotSavable
from attnc.runtime.errors import ArtifactError, BuildError, PlanMissing, ToolchainMissing


class CliError(Exception):
    """A command can't do what it was asked; the message says why and what to do."""


EXPECTED = (
    CliError, ArtifactError, NotSavable, OnnxError, OptionError, BuildError, PlanMissing, ToolchainMissing, OSError,
)  # fmt: skip
"""Errors whose text is written for users. Anything else is shown with its type, as a fault of ours or of the model."""


def describe(error: Exception) -> str:
    """The text to show for ``error``."""
    if isinstance(error, EXPECTED) or _is_of_the_ir(error):
        return f"attnc: {error}"
    return f"attnc: {type(error).__name__}: {error}\n(ATTNC_DEBUG=1 shows where)"


def _is_of_the_ir(error: Exception) -> bool:
    """Whether the IR raised it. The IR is not imported to find out: artifacts run where its packages are missing."""
    diagnostics = sys.modules.get("attnc.ir.diagnostics")
    return diagnostics is not None and isinstance(error, diagnostics.AttncError)
