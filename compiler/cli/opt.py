"""``attnc opt``: run chosen passes over a graph in text form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnc.compiler.cli import source

if TYPE_CHECKING:
    from attnc.compiler.passes.base import Pass


def opt(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A graph in text form.")],
    passes: Annotated[str, typer.Option(metavar="A,B,…", help="Passes to run, in this order.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: stdout.")] = None,
) -> None:
    """Read a graph, run the passes, verify after each, and print the result."""
    from attnc.compiler.passes.base import Context
    from attnc.compiler.passes.pipeline import run_pipeline
    from attnc.ir.printer import print_graph

    chosen = _choose(passes)
    graph = source.read_graph(file)
    run_pipeline(graph, Context(), passes=chosen, check=True)
    text = print_graph(graph)
    if output is None:
        typer.echo(text, nl=False)
        return
    from attnc.compiler.cli.output import staged_file

    with staged_file(output) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _choose(names: str) -> tuple[Pass, ...]:
    """The passes of a comma-separated list. Raises CliError for a name the pipeline doesn't have."""
    from attnc.compiler.cli.errors import CliError
    from attnc.compiler.passes.pipeline import passes_by_name

    try:
        return passes_by_name([name.strip() for name in names.split(",") if name.strip()])
    except ValueError as error:
        raise CliError(f"--passes {names}: {error}") from error
