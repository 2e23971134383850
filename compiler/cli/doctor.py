"""``attnc doctor``: what this machine has, what is amiss, and what to do about it."""

from __future__ import annotations

import typer

MARKS = {"ok": ("ok", "green"), "warning": ("!", "yellow"), "error": ("no", "red")}


def doctor() -> None:
    """Check the compiler, the store, the launcher and the installed packages; exit with 1 where something is broken."""
    from rich.table import Table
    from rich.text import Text

    from attnc.compiler.cli.console import progress, stdout
    from attnc.compiler.options import Options
    from attnc.runtime.config import Config, configure
    from attnc.runtime.doctor import examine

    options = Options.make()
    configure(Config(cache_dir=options.store_root, cxx=options.cxx))
    with progress("examining this machine"):
        facts = examine()
    table = Table(box=None, show_header=False)
    for fact in facts:
        mark, style = MARKS[fact.status]
        detail = f"{fact.detail}\n{fact.remedy}" if fact.remedy else fact.detail
        table.add_row(Text(mark, style=style), fact.name, Text(detail))
    stdout().print(table)
    if any(fact.status == "error" for fact in facts):
        raise typer.Exit(1)
