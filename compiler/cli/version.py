"""``attnc version``."""

from __future__ import annotations

import platform

import typer


def version() -> None:
    """Print the versions of attnc and of what it stands on."""
    import attnc
    from attnc.runtime.doctor import installed

    typer.echo(f"attnc {attnc.__version__}")
    for package in ("torch", "triton"):
        typer.echo(f"{package} {installed(package) or 'not installed'}")
    typer.echo(f"python {platform.python_version()}")
