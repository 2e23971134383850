"""Where commands write: results to stdout, everything else to stderr."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def stdout() -> Console:
    """The console for results. Piped output isn't wrapped at 80 columns."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = 160
    return console


def progress(text: str) -> AbstractContextManager[object]:
    """A spinner on stderr while the block runs; nothing where stderr is no terminal."""
    from rich.console import Console

    return Console(stderr=True).status(text)
