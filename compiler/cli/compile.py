"""``attnc compile``: compile a model into an artifact, and keep what the compiler saw at each step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnc.compiler.cli import dims, inputs, source

if TYPE_CHECKING:
    from attnc.compiler.cli.source import Subject


class Emit(StrEnum):
    """What is written."""

    ARTIFACT = "artifact"
    ONNX = "onnx"


def compile_source(
    src: Annotated[str, typer.Argument(metavar="SRC", help=source.HELP)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file to write: model.attnc, or an .onnx.")
    ] = None,
    emit: Annotated[
        Emit,
        typer.Option(
            help="artifact: one file that runs without this compiler. onnx: an ONNX file with its attentions "
            "as onnxruntime's operator, where that means exactly the same."
        ),
    ] = Emit.ARTIFACT,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="What its kernels are compiled for: cpu (default), cpu-avx2, sm_90, …."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Run source and result side by side on random and adversarial inputs of several "
            "sizes; exit with 1 where one is wrong.",
        ),
    ] = False,
    dump_ir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A new folder: the IR after each pass, numbered, and the kernels."),
    ] = None,
    example: Annotated[Path | None, typer.Option("--inputs", metavar="FILE", help=inputs.HELP)] = None,
    dim: Annotated[list[str] | None, typer.Option(metavar="NAME=RANGE", help=dims.HELP)] = None,
) -> None:
    """Compile a model; write it as one file that runs without this compiler, or the IR of each pass into a folder."""
    if output is None and dump_ir is None and not check:
        raise typer.BadParameter("nothing to do: give --output model.attnc, --dump-ir DIR or --check")
    targets = _targets(target, output, emit)
    subject = source.load(src, example, dims.parse_dims(dim or []))
    if emit is Emit.ONNX:
        made = _emit_onnx(subject, output)
    else:
        made = _compile(subject, output, targets, dump_ir, example)
    if check:
        _check(subject, example, made)


def _compile(
    subject: Subject, output: Path | None, targets: tuple[str, ...], dump_ir: Path | None, example: Path | None
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Compile and write; what runs it: the artifact where there is one."""
    from attnc.compiler.cli.console import progress, stdout
    from attnc.compiler.cli.output import staged_folder

    with ExitStack() as stack:
        folder = stack.enter_context(staged_folder(dump_ir)) if dump_ir is not None else None
        stack.enter_context(progress(f"compiling {subject.name}"))
        options = {} if folder is None else {"dump_ir": str(folder)}
        if output is not None:
            source.hold_constants(subject, example)
        program = source.compiled(subject, options)
        if output is not None:
            program.save(output, targets=targets)
    program.report.render(stdout())
    files = [] if dump_ir is None else sorted(path for path in dump_ir.rglob("*") if path.is_file())
    for file in [*files, *([output] if output is not None else [])]:
        typer.echo(file)
    if output is None:
        return program.run
    from attnc.runtime.artifact.loader import load

    return load(output).run


def _emit_onnx(subject: Subject, output: Path | None) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Write the ONNX file, and say which attentions are in it as one operator; what runs it."""
    from attnc.compiler.cli.console import progress
    from attnc.compiler.cli.errors import CliError
    from attnc.compiler.cli.output import staged_file
    from attnc.runtime.onnx_whole import OnnxruntimeModel

    if output is None or not isinstance(subject.model, Path):
        raise CliError(f"{subject.name}: --emit onnx takes an ONNX file, and --output names the one to write")
    from attnc.compiler.onnx_out.emit import emit_onnx

    with progress(f"rewriting {subject.name}"):
        made = emit_onnx(subject.model, sizes=subject.dynamic_shapes)
        with staged_file(output) as temporary:
            temporary.write_bytes(made.proto.SerializeToString(deterministic=True))
    typer.echo(f"{output}: {len(made.replaced)} of {len(made.replaced) + len(made.kept)} attentions are one operator")
    for site, reason in made.kept:
        typer.echo(f"  kept: {site.where}: {reason}")
    model = OnnxruntimeModel(str(output))
    return lambda given: dict(zip(model.outputs, model(**given), strict=True))


def _check(subject: Subject, example: Path | None, made: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    from attnc.compiler.cli.checking import check_subject, show
    from attnc.compiler.cli.console import progress, stdout

    with progress(f"checking {subject.name}"):
        checked = check_subject(subject, example, made)
    show(checked, stdout())
    if not checked.passed:
        wrong = sum(not row.passed for row in checked.rows)
        typer.echo(f"attnc: {wrong} of {len(checked.rows)} results are wrong", err=True)
        raise typer.Exit(1)


def _targets(names: list[str] | None, output: Path | None, emit: Emit) -> tuple[str, ...]:
    from attnc.codegen.targets import CAPABILITIES

    for name in names or ():
        if name not in CAPABILITIES:
            raise typer.BadParameter(f"--target {name}: known are {', '.join(CAPABILITIES)}")
    if names and (output is None or emit is Emit.ONNX):
        raise typer.BadParameter("--target: machine code is written with --output model.attnc")
    return tuple(names or ("cpu",))
