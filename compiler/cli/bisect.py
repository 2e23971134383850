"""``attnc bisect``: which pass, and which op of it, moved a number."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from attnc.compiler.cli import dims, inputs, source


class Precision(StrEnum):
    """How floats are computed."""

    WIDE = "float64"
    WRITTEN = "float32"


def bisect(
    src: Annotated[str, typer.Argument(metavar="SRC", help=source.HELP)],
    example: Annotated[Path | None, typer.Option("--inputs", metavar="FILE", help=inputs.HELP)] = None,
    dim: Annotated[list[str] | None, typer.Option(metavar="NAME=RANGE", help=dims.HELP)] = None,
    dtype: Annotated[
        Precision,
        typer.Option(help="float64 widens every float, so that only meaning shows; float32 computes as written."),
    ] = Precision.WIDE,
    adversarial: Annotated[
        bool,
        typer.Option("--adversarial", help="Also other lengths, dead rows, all padding, NaN and inf behind the mask."),
    ] = False,
) -> None:
    """Run the graph after each pass in the reference interpreter; exit with 1 where a number moved, and say where."""
    from attnc.compiler.cli.console import progress
    from attnc.compiler.cli.errors import CliError
    from attnc.compiler.cli.subject import open_subject
    from attnc.compiler.inspection.adversarial import input_sets
    from attnc.compiler.inspection.bisect import bisect_passes

    with progress(f"bisecting {src}"):
        opened = open_subject(source.load(src, example, dims.parse_dims(dim or [])), example)
        sets = {"as given": opened.inputs}
        if adversarial:
            sets |= input_sets(opened.graph, opened.inputs, opened.names)
        found = bisect_passes(opened.graph, sets, wide=dtype is Precision.WIDE)
    if not found.sets:
        raise CliError(f"{src}: cannot be run in the reference interpreter: {'; '.join(found.left_out)}")
    for line in found.lines():
        typer.echo(line)
    if found.move is not None:
        raise typer.Exit(1)
