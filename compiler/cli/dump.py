"""``attnc dump``: read what ``--dump-ir`` wrote: a page of it, the differences of two, a graph for Graphviz."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnc.compiler.cli import source

app = typer.Typer(
    help="Read IR dumps: a page, the differences of two, a graph for Graphviz.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("html")
def html(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by --dump-ir or ATTNC_DUMP.")],
) -> None:
    """Write DIR/index.html, a page that needs no other file: every pass as a diff, sites, masks, kernels."""
    from attnc.compiler.cli.console import progress
    from attnc.compiler.cli.output import staged_file
    from attnc.compiler.inspection.folder import read_dump
    from attnc.compiler.inspection.page import page

    with progress(f"reading {folder}"):
        dumps = read_dump(folder)
        text = page(dumps, ", ".join(dict.fromkeys(dump.name for dump in dumps)))
    target = folder / "index.html"
    with staged_file(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    typer.echo(target)


@app.command("diff")
def diff(
    left: Annotated[Path, typer.Argument(metavar="A", help="A dump folder, or a graph in text form.")],
    right: Annotated[Path, typer.Argument(metavar="B", help="Another of the same kind.")],
) -> None:
    """Print what differs, pass by pass, op by op and site by site, whatever values are named; exit with 1 if any."""
    from attnc.compiler.cli.errors import CliError
    from attnc.compiler.inspection.compare import compare_dumps, compare_graphs
    from attnc.compiler.inspection.folder import read_dump

    if left.is_dir() != right.is_dir():
        raise CliError(f"comparing {left} with {right}: one is a folder and one isn't; give two dumps or two .ir files")
    if left.is_dir():
        found = compare_dumps(read_dump(left), read_dump(right))
    else:
        found = compare_graphs(source.read_graph(left), source.read_graph(right))
    for line in found:
        typer.echo(line)
    if found:
        raise typer.Exit(1)
    typer.echo("no difference")


@app.command("dot")
def dot(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A graph in text form.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: stdout.")] = None,
) -> None:
    """Print a graph in Graphviz's language; ``dot -Tsvg`` draws it."""
    from attnc.compiler.cli.output import staged_file

    text = source.read_graph(file).to_dot()
    if output is None:
        typer.echo(text, nl=False)
        return
    with staged_file(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
