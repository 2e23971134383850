"""``attnc cache``: what lies in the build store, and emptying it."""

from __future__ import annotations

import typer

app = typer.Typer(help="List or empty the store of built kernels.", no_args_is_help=True, rich_markup_mode=None)


@app.command("ls")
def ls() -> None:
    """List the built kernels with size and age."""
    from rich.table import Table

    from attnc.compiler.cli.console import stdout
    from attnc.compiler.options import Options
    from attnc.runtime.store import Store

    store = Store(Options.make().store_root)
    entries = store.ls()
    typer.echo(f"{store.root}: {len(entries)} kernels")
    table = Table()
    for heading in ("kernel", "kB", "age"):
        table.add_column(heading, overflow="fold")
    for entry in entries:
        table.add_row(entry.path.name, f"{entry.bytes / 1000:.0f}", _age(entry.age))
    if entries:
        stdout().print(table)


@app.command("clear")
def clear() -> None:
    """Remove every built kernel. Running processes keep the kernels they have loaded."""
    from attnc.compiler.options import Options
    from attnc.runtime.store import Store

    store = Store(Options.make().store_root)
    done = store.clear()
    busy = f"; {done.in_use} are being built and stay" if done.in_use else ""
    typer.echo(f"{store.root}: removed {done.entries} kernels, {done.bytes / 1e6:.1f} MB{busy}")


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
