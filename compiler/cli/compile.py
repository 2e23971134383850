"""``attnc compile``: compile a model and keep what the compiler saw at each step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnc.compiler.cli import dims, inputs, source


def compile_source(
    src: Annotated[str, typer.Argument(metavar="SRC", help=source.HELP)],
    dump_ir: Annotated[
        Path, typer.Option(metavar="DIR", help="A new folder: the IR after each pass, numbered, and the kernels.")
    ],
    example: Annotated[Path | None, typer.Option("--inputs", metavar="FILE", help=inputs.HELP)] = None,
    dim: Annotated[list[str] | None, typer.Option(metavar="NAME=RANGE", help=dims.HELP)] = None,
) -> None:
    """Compile a model; write the IR before and after each pass, and every kernel, into a folder."""
    from attnc.compiler.cli.console import progress, stdout
    from attnc.compiler.cli.output import staged_folder

    with staged_folder(dump_ir) as folder, progress(f"compiling {src}"):
        subject = source.load(src, example, dims.parse_dims(dim or []))
        from attnc.compiler import api

        program = api.compile(
            subject.model,
            subject.args,
            subject.kwargs,
            dynamic_shapes=subject.dynamic_shapes,
            name=src,
            options={"dump_ir": str(folder)},
        )
    program.report.render(stdout())
    for file in sorted(path for path in dump_ir.rglob("*") if path.is_file()):
        typer.echo(file)
