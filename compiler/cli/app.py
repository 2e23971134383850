"""The command tree, and the border where errors become messages."""

from __future__ import annotations

import sys
import warnings

import typer

from attnc.compiler.cli import (
    bisect,
    cache,
    compile,
    doctor,
    dump,
    explain,
    generate,
    inspect,
    kernels,
    opt,
    run_source,
    version,
)

app = typer.Typer(
    name="attnc",
    help="An attention compiler: finds every attention in an unmodified transformer and emits a kernel for it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("explain")(explain.explain)
app.command("compile")(compile.compile_source)
app.command("generate")(generate.generate)
app.command("opt")(opt.opt)
app.command("run")(run_source.run_source)
app.command("inspect")(inspect.inspect)
app.command("kernels")(kernels.kernels)
app.command("bisect")(bisect.bisect)
app.add_typer(dump.app, name="dump")
app.command("doctor")(doctor.doctor)
app.add_typer(cache.app, name="cache")
app.command("version")(version.version)


def run(arguments: list[str]) -> int:
    """Run one command; returns its exit status: 0 done, 1 failed, 2 wrongly called."""
    try:
        with warnings.catch_warnings():
            # torch.export warns of its own internals; whoever reads a command's output can do nothing about that.
            warnings.filterwarnings("ignore", category=FutureWarning, module="copyreg")
            app(arguments, prog_name="attnc")
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    except Exception as error:  # the border: whatever went wrong below is told to a person here
        from attnc.compiler.cli.errors import describe
        from attnc.compiler.options import debug

        if debug():
            raise
        print(describe(error), file=sys.stderr)
        return 1
    return 0
