"""``attnc inspect``: what an artifact holds, after its hashes; of a model, what its artifact would hold."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from attnc.compiler.cli import dims, inputs, source


def inspect(
    src: Annotated[str, typer.Argument(metavar="SRC", help=f"file.attnc, {source.HELP}")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    example: Annotated[Path | None, typer.Option("--inputs", metavar="FILE", help=inputs.HELP)] = None,
    dim: Annotated[list[str] | None, typer.Option(metavar="NAME=RANGE", help=dims.HELP)] = None,
) -> None:
    """Show inputs, outputs, targets, kernels and sizes of an artifact; exits with 1 where it isn't whole."""
    from attnc.runtime.artifact.describe import describe

    if src.endswith(source.ARTIFACT):
        found = describe(src)
    else:
        from attnc.compiler.cli.console import progress

        with tempfile.TemporaryDirectory(prefix="attnc-") as folder, progress(f"compiling {src}"):
            file = Path(folder) / f"model{source.ARTIFACT}"
            subject = source.load(src, example, dims.parse_dims(dim or []))
            source.hold_constants(subject, example)
            source.compiled(subject).save(file)
            found = describe(file)
    _print(found, json)


def _print(found: dict[str, Any], as_json: bool) -> None:
    import json

    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from attnc.compiler.cli.console import stdout

    console = stdout()
    console.print(f"{found['name']}: artifact of attnc {found['attnc']}, {found['bytes']:,} bytes", highlight=False)
    sizes = ", ".join(f"{s['name']} from {s['lo']} to {s['hi'] or 'any'}" for s in found["sizes"])
    if sizes:
        console.print(f"sizes: {sizes}", highlight=False)
    _table(console, "inputs", ("name", "type", "written in place"), found["inputs"])
    _table(console, "outputs", ("name", "type"), found["outputs"])
    _table(console, "attentions", ("kernel", "count", "target", "machine code", "runs here"), found["attentions"])
    _table(console, "operators", ("name", "count"), found["operators"])
    _table(console, "entries", ("name", "bytes"), found["entries"])


def _table(console: Any, title: str, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    if not rows:
        return
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(_shown(row[column.replace(" ", "_")])) for column in columns))
    console.print(table)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
