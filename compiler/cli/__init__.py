"""The `attnc` command. One file per subcommand; they load torch only once they need it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status. ``arguments`` default to the process's own."""
    import sys

    from attnc.compiler.cli.app import run

    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))
