"""``attnc compile``: compile a model into an artifact, and keep what the compiler saw at each step."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from attnc.compiler.cli import dims, inputs, source


def compile_source(
    src: Annotated[str, typer.Argument(metavar="SRC", help=source.HELP)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The artifact to write, model.attnc.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="What its kernels are compiled for: cpu (default), cpu-avx2, sm_90, …."),
    ] = None,
    dump_ir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A new folder: the IR after each pass, numbered, and the kernels."),
    ] = None,
    example: Annotated[Path | None, typer.Option("--inputs", metavar="FILE", help=inputs.HELP)] = None,
    dim: Annotated[list[str] | None, typer.Option(metavar="NAME=RANGE", help=dims.HELP)] = None,
) -> None:
    """Compile a model; write it as one file that runs without this compiler, or the IR of each pass into a folder."""
    from attnc.compiler.cli.console import progress, stdout
    from attnc.compiler.cli.output import staged_folder

    if output is None and dump_ir is None:
        raise typer.BadParameter("nothing to write: give --output model.attnc, or --dump-ir DIR")
    targets = _targets(target, output)
    with ExitStack() as stack:
        folder = stack.enter_context(staged_folder(dump_ir)) if dump_ir is not None else None
        stack.enter_context(progress(f"compiling {src}"))
        subject = source.load(src, example, dims.parse_dims(dim or []))
        options = {} if folder is None else {"dump_ir": str(folder)}
        program = source.compiled(subject, example if output is not None else None, options)
        if output is not None:
            program.save(output, targets=targets)
    program.report.render(stdout())
    files = [] if dump_ir is None else sorted(path for path in dump_ir.rglob("*") if path.is_file())
    for file in [*files, *([output] if output is not None else [])]:
        typer.echo(file)


def _targets(names: list[str] | None, output: Path | None) -> tuple[str, ...]:
    from attnc.codegen.targets import CAPABILITIES

    for name in names or ():
        if name not in CAPABILITIES:
            raise typer.BadParameter(f"--target {name}: known are {', '.join(CAPABILITIES)}")
    if names and output is None:
        raise typer.BadParameter("--target: machine code is written with --output model.attnc")
    return tuple(names or ("cpu",))
