"""``attnc explain``: what is fused, what isn't, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnc.compiler.cli import dims, inputs, source


def explain(
    src: Annotated[str, typer.Argument(metavar="SRC", help=source.HELP)],
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    fail_under: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=100, help="Exit with 1 where fewer than N % of the attentions are fused."),
    ] = None,
    example: Annotated[Path | None, typer.Option("--inputs", metavar="FILE", help=inputs.HELP)] = None,
    dim: Annotated[list[str] | None, typer.Option(metavar="NAME=RANGE", help=dims.HELP)] = None,
) -> None:
    """Show every attention of a model: where it is, its mask as a formula, its kernel or the reason there is none."""
    from attnc.compiler.cli.console import progress, stdout

    with progress(f"explaining {src}"):
        subject = source.load(src, example, dims.parse_dims(dim or []))
        from attnc.compiler import api

        report = api.explain(
            subject.model, subject.args, subject.kwargs, dynamic_shapes=subject.dynamic_shapes, name=src
        )
    if json:
        print(report.to_json())
    else:
        report.render(stdout())
    if fail_under is not None:
        _judge(report.fused, report.total, fail_under)


def _judge(fused: int, total: int, percent: int) -> None:
    """Fail below the wished share; a model without any attention has a share of 0."""
    if 100 * fused < percent * max(total, 1):
        typer.echo(f"attnc: {fused} of {total} attentions are fused, fewer than {percent} %", err=True)
        raise typer.Exit(1)
