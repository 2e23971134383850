"""``attnc explain``: what is fused, what isn't, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnc.compiler.cli import dims, inputs, source

if TYPE_CHECKING:
    from attnc.compiler.api import Program


def explain(
    src: Annotated[str, typer.Argument(metavar="SRC", help=source.HELP)],
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    fail_under: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=100, help="Exit with 1 where fewer than N % of the attentions are fused."),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Mask pictures: a folder for one a fused site, or one .png for all."),
    ] = None,
    example: Annotated[Path | None, typer.Option("--inputs", metavar="FILE", help=inputs.HELP)] = None,
    dim: Annotated[list[str] | None, typer.Option(metavar="NAME=RANGE", help=dims.HELP)] = None,
) -> None:
    """Show every attention of a model: where it is, its mask as a formula, its kernel or the reason there is none."""
    from attnc.compiler.cli.console import progress, stdout

    with progress(f"explaining {src}"):
        subject = source.load(src, example, dims.parse_dims(dim or []))
        from attnc.compiler import api

        program = api.compile(
            subject.model, subject.args, subject.kwargs, dynamic_shapes=subject.dynamic_shapes, name=src
        )
    report = program.report
    if json:
        print(report.to_json())
    else:
        report.render(stdout())
    if png is not None:
        _draw(program, png)
    if fail_under is not None:
        _judge(report.fused, report.total, fail_under)


def _judge(fused: int, total: int, percent: int) -> None:
    """Fail below the wished share; a model without any attention has a share of 0."""
    if 100 * fused < percent * max(total, 1):
        typer.echo(f"attnc: {fused} of {total} attentions are fused, fewer than {percent} %", err=True)
        raise typer.Exit(1)


def _draw(program: Program, path: Path) -> None:
    """Write the pictures and say on stderr which is where. Raises CliError where one file can't hold them."""
    from attnc.compiler.cli.errors import CliError
    from attnc.compiler.cli.output import staged_file
    from attnc.compiler.inspection.pictures import album_of
    from attnc.compiler.inspection.png import encode

    drawn = album_of(program.graph)
    single = path.suffix == ".png"
    if single and len(set(drawn.values())) != 1:
        raise CliError(f"--png {path}: there are {len(set(drawn.values()))} different masks; name a folder")
    if not single:
        path.mkdir(parents=True, exist_ok=True)
    for number, picture in list(drawn.items())[: 1 if single else None]:
        site = program.report.sites[number]
        target = path if single else path / f"site_{number:02d}.png"
        with staged_file(target) as temporary:
            temporary.write_bytes(encode(picture, f"{site.module} {site.where}: {site.mask}"))
        shared = f"sites {', '.join(map(str, drawn))}" if single else f"site {number}"
        typer.echo(f"{target}: {shared}, {site.mask}; {picture.caption()}", err=True)
