"""``attnc run``: execute a graph in text form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnc.compiler.cli import source

if TYPE_CHECKING:
    from torch import Tensor


def run_graph(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A graph in text form.")],
    example: Annotated[
        Path, typer.Option("--inputs", metavar="FILE", help="An .npz: arrays named as the graph's inputs.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the results as .npz.")
    ] = None,
) -> None:
    """Run a graph on given inputs through the reference interpreter; print each result's shape, dtype and range."""
    from attnc.compiler.cli.execute import execute

    results = execute(source.read_graph(file), example)
    for name, tensor in results.items():
        typer.echo(f"{name}: {tensor.dtype} {list(tensor.shape)} {_range(tensor)}")
    if output is None:
        return
    import numpy

    from attnc.compiler.cli.output import staged_file

    with staged_file(output) as temporary, temporary.open("wb") as stream:
        numpy.savez(stream, **{name: _to_numpy(tensor) for name, tensor in results.items()})


def _range(tensor: Tensor) -> str:
    """The least and greatest element; ``empty`` where there is none."""
    if tensor.numel() == 0:
        return "empty"
    return f"from {tensor.min().item():.6g} to {tensor.max().item():.6g}"


def _to_numpy(tensor: Tensor) -> Any:
    """numpy has no bfloat16: such results are widened to float32, which loses nothing."""
    import torch

    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
