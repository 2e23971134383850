"""``attnc version``."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

import typer


def version() -> None:
    """Print the versions of attnc and of what it stands on."""
    import attnc

    typer.echo(f"attnc {attnc.__version__}")
    for package in ("torch", "triton"):
        typer.echo(f"{package} {_installed(package)}")
    typer.echo(f"python {platform.python_version()}")


def _installed(package: str) -> str:
    try:
        return installed(package)
    except PackageNotFoundError:
        return "not installed"
